// One JSON line in, one out: {call, args} -> {value}. Functions of the page's modules.
import readline from 'node:readline';
import * as flow from '../../../src/handoff/plugins/hermes_handoff/dashboard/flow.mjs';
import * as words from '../../../src/handoff/plugins/hermes_handoff/dashboard/texts.mjs';

const calls = {
  ...flow,
  constants: () => ({STAGES: flow.STAGES, STEPS: flow.STEPS, POLLED: flow.POLLED, WAIT: flow.WAIT}),
  texts: () => words.TEXTS,
  said: (language, ids) => ids.map(words.texts(language)),
  // The state must not be changed in place: it is compared before and after.
  next(state, event) {
    const before = JSON.stringify(state);
    const [now, effects] = flow.next(state, event);
    return {state: now, effects, same: now === state, intact: before === JSON.stringify(state)};
  },
};

for await (const line of readline.createInterface({input: process.stdin})) {
  const {call, args} = JSON.parse(line);
  let told;
  try {
    told = {value: calls[call](...args)};
  } catch (error) {
    told = {error: String(error && error.stack)};
  }
  process.stdout.write(JSON.stringify(told) + '\n');
}
