// The Handoff page as data: what it knows, what may happen next, and what is to be done then.
//
// next(state, event) returns [state, effects]. Nothing here knows a window, a network, a clock
// or chance: the page carries the effects out, in order, and hands back what came of them. An
// event that does not fit the stage changes nothing and has no effect.
//
// stage             what it means
// idle              nothing was asked
// checking          the back end looks at the chat and the folder; nothing was sent
// asking            the ids are saved; the one turn is being sent to the source chat
// asked             the turn was sent; the journal is polled for the attempt
// ask_uncertain     whether the turn was sent, or what came of it, is not known
// prepared          the attempt is frozen
// opening           step: begin, create, identify, submit, mark; or fail (proved: no session)
// open_uncertain    a start was written down; a session may exist
// prompt_uncertain  the session exists; whether it has its prompt is not known
// opened            the session exists and has its prompt
// ended             the attempt is over
//
// Two things are never done by themselves: asking a source chat again, and submitting an
// opening prompt again.

export const FORMAT = 1;
/** ms that the source chat has before the page stops expecting an attempt */
export const WAIT = 15 * 60 * 1000;
export const STAGES = ['idle', 'checking', 'asking', 'asked', 'ask_uncertain', 'prepared',
  'opening', 'open_uncertain', 'prompt_uncertain', 'opened', 'ended'];
export const STEPS = ['', 'begin', 'create', 'identify', 'submit', 'mark', 'fail'];
/** stages in which the journal is asked again and again */
export const POLLED = ['asked', 'ask_uncertain', 'open_uncertain', 'prompt_uncertain', 'opened'];
const TERMINAL = ['launch_failed', 'closed', 'abandoned', 'superseded'];
const ENTRIES = ['request', 'attempt', 'session', 'runtime', 'profile', 'connection', 'workspace',
  'model', 'provider', 'writerModel', 'writerProvider', 'locale'];
const TOKEN = /^[A-Za-z0-9][A-Za-z0-9._-]{7,63}$/;
const DRIVE = /^[A-Za-z]:[\\/]/;

export function initial() {
  return {stage: 'idle', step: '', ask: null, ref: '', status: null, frozen: null, prompt: '',
    destination: null, recovery: null, refusal: null, trouble: null, busy: ''};
}

// -- what stands against it ----------------------------------------------------------------

const refusal = (code, message = '', remedy = '', keys = []) => ({code, message, remedy, keys});

/** Why nothing may be sent to or opened on this back end; '' if nothing stands against it. */
export function refuseBackend(capture) {
  if (!capture || capture.gateway !== 'open') return 'gateway_closed';
  if (!capture.profile || !capture.activeProfile) return 'profile_unknown';
  if (capture.profile !== capture.activeProfile) return 'other_profile';
  if (!capture.connection || !capture.activeConnection) return 'connection_unknown';
  if (capture.connection !== capture.activeConnection) return 'other_connection';
  if (capture.mode !== 'local') return 'remote_gateway';
  return '';
}

/** Why the focused chat can't be asked; '' if it can. */
export function refuseCapture(capture) {
  if (!capture || !capture.runtime) return 'no_chat';
  const why = refuseBackend(capture);
  if (why) return why;
  if (!capture.session) return 'chat_not_saved';
  return capture.busy ? 'chat_busy' : '';
}

/** What is wrong with what the person entered; '' if nothing. */
export function refuseForm(form) {
  const path = form.workspace || '';
  if (!(path.startsWith('/') || DRIVE.test(path))) return 'workspace_relative';
  if (/[\0\r\n]/.test(path)) return 'workspace_lines';
  if (Boolean(form.model) !== Boolean(form.provider)) return 'model_half';
  if (Boolean(form.writerModel) !== Boolean(form.writerProvider)) return 'writer_half';
  return form.writerModel && form.acceptCost !== true ? 'writer_cost' : '';
}

/** The one message that the source chat gets. Every value is JSON: none can end its line. */
export function askText(ask) {
  const line = (action, more) =>
    JSON.stringify({action, workspace: ask.workspace, ...more}).replace(/[\u007f-\uffff]/g,
      (sign) => '\\u' + sign.charCodeAt(0).toString(16).padStart(4, '0'));
  const open = {ref: '<ref of the record>', attempt_id: ask.attempt, surface: 'desktop'};
  if (ask.model) Object.assign(open, {model: ask.model, provider: ask.provider});
  if (ask.locale === 'it') open.locale = 'it';
  const writer = {model: ask.writerModel, provider: ask.writerProvider, accept_cost: true};
  return [
    'Hand this session over, as the skill hermes-handoff:handoff says; the Handoff page asks for it.',
    'Call the tool hermes_handoff in this order, with exactly these values; only <...> is yours to fill in:',
    line('evidence', {}),
    ...(ask.writerModel ? [line('summarize', writer)] : []),
    line('create', {request_id: ask.request, state: '<the state>'}),
    line('prepare_open', open),
    'If a call is refused, show me every finding and stop. The page opens the new session, not you.',
  ].join('\n');
}

// -- what is kept over a reload --------------------------------------------------------------

const saved = (state) => state.ask && {format: FORMAT, stage: state.stage, step: state.step,
  ask: state.ask, ref: state.ref, destination: state.destination};
const save = (state) => ({do: 'save', value: saved(state)});
// Without this one nothing that follows may be done.
const mustSave = (state) => ({...save(state), must: true});
const poll = (state) => ({do: 'rest', action: 'attempt', then: 'polled', attempt: state.ask.attempt,
  args: {attempt_id: state.ask.attempt}});

/** What was saved, if it is whole; null otherwise. */
export function readSaved(value) {
  if (!value || typeof value !== 'object' || value.format !== FORMAT) return null;
  const {stage, step, ask, ref, destination} = value;
  if (!STAGES.includes(stage) || !STEPS.includes(step) || typeof ref !== 'string') return null;
  if (!ask || typeof ask !== 'object' || typeof ask.at !== 'number') return null;
  if (ENTRIES.some((name) => typeof ask[name] !== 'string')) return null;
  if (!TOKEN.test(ask.attempt) || !TOKEN.test(ask.request)) return null;
  if (destination !== null && (typeof destination !== 'object'
    || typeof destination.session !== 'string' || typeof destination.runtime !== 'string')) return null;
  return {stage, step, ask, ref, destination};
}

/** A saved flow in a page that begins anew: whatever was under way has an unknown outcome. */
function resumed(found) {
  const state = {...initial(), ...found};
  if (state.stage === 'idle' || state.stage === 'checking') return [initial(), [{do: 'save', value: null}]];
  if (state.stage === 'asking') state.stage = 'ask_uncertain';
  if (state.stage === 'opening') {
    state.stage = ['submit', 'mark'].includes(state.step) ? 'prompt_uncertain' : 'open_uncertain';
  }
  state.step = '';
  return [state, [save(state), poll(state)]];
}

const same = (found, state) => {
  const mine = saved(state);
  return JSON.stringify(readSaved(found)) === JSON.stringify(readSaved(mine));
};

// -- what happens ------------------------------------------------------------------------------

const refused = (state, stage, why, effects = []) => [{...state, stage, step: '', busy: '', refusal: why}, effects];
const said = (reply) => refusal(String((reply && reply.code) || 'unreachable'),
  String((reply && reply.message) || ''), String((reply && reply.remedy) || ''),
  (reply && reply.details && reply.details.findings) || []);
const unsure = (reply) => !reply || reply.lost === true || reply.retry === 'after_inspection'
  || reply.code === 'internal';

/** The stage that follows from what the journal says. */
export function settle(stage, status) {
  if (TERMINAL.includes(status.state)) return 'ended';
  if (status.state === 'prepared') return 'prepared';
  if (status.state === 'reserved' || status.state === 'requested') return 'open_uncertain';
  return status.prompt === 'prompt_uncertain' ? 'prompt_uncertain' : 'opened';
}

function known(state, reply) {
  const status = reply.status || reply;
  const stage = settle(state.stage, status);
  const now = {...state, stage, step: '', status, ref: status.ref || state.ref,
    frozen: reply.frozen || state.frozen, trouble: null};
  const changed = stage !== state.stage || now.ref !== state.ref;
  return [now, changed ? [save(now)] : []];
}

const HANDLERS = {
  restore(state, event) {
    if (state.stage !== 'idle' || state.ask) return null;
    if (event.saved === null || event.saved === undefined) return null;
    const found = readSaved(event.saved);
    return found ? resumed(found) : [state, [{do: 'save', value: null}]];
  },

  prepare(state, event) {
    if (state.stage !== 'idle' && state.stage !== 'ended') return null;
    if (event.saved && !same(event.saved, state) && readSaved(event.saved)) {
      const [found, effects] = resumed(readSaved(event.saved));
      return [{...found, refusal: refusal('other_window')}, effects];
    }
    const {form, capture, ids} = event;
    const why = refuseForm(form) || refuseCapture(capture);
    if (why) return refused(state, state.stage, refusal(why));
    const ask = {request: ids.request, attempt: ids.attempt, session: capture.session,
      runtime: capture.runtime, profile: capture.profile, connection: capture.connection,
      workspace: form.workspace, model: form.model || '', provider: form.provider || '',
      writerModel: form.writerModel || '', writerProvider: form.writerProvider || '',
      locale: event.locale === 'it' ? 'it' : 'en', at: event.now};
    return [{...initial(), stage: 'checking', ask}, [{do: 'rest', action: 'capture', then: 'captured',
      attempt: ask.attempt, args: {session: ask.session, workspace: ask.workspace}}]];
  },

  captured(state, event) {
    if (state.stage !== 'checking') return null;
    const {reply, capture} = event, {ask} = state, fresh = initial();
    if (!reply || !reply.ok) return refused(fresh, 'idle', said(reply));
    if (reply.profile !== ask.profile) return refused(fresh, 'idle', refusal('other_profile'));
    if (ask.writerModel && !(reply.writer && reply.writer.allowed)) {
      return refused(fresh, 'idle', refusal('writer_consent', '', '', (reply.writer && reply.writer.keys) || []));
    }
    const why = refuseCapture(capture);
    if (why) return refused(fresh, 'idle', refusal(why));
    if (capture.session !== ask.session || capture.runtime !== ask.runtime) {
      return refused(fresh, 'idle', refusal('focus_changed'));
    }
    const now = {...state, stage: 'asking'};
    return [now, [mustSave(now), {do: 'ask', attempt: ask.attempt, runtime: ask.runtime, text: askText(ask)}]];
  },

  asked(state, event) {
    if (state.stage !== 'asking') return null;
    if (event.outcome === 'refused') {
      return refused(initial(), 'idle', refusal('not_sent', event.message), [{do: 'save', value: null}]);
    }
    const now = {...state, stage: event.outcome === 'sent' ? 'asked' : 'ask_uncertain', refusal: null};
    return [now, [save(now)]];
  },

  save_failed(state) {
    if (state.stage === 'asking') return refused(initial(), 'idle', refusal('storage_failed'));
    if (state.stage === 'opening' && state.step === 'begin') return refused(state, 'prepared', refusal('storage_failed'));
    return [{...state, refusal: refusal('storage_failed')}, []];
  },

  poll(state) {
    return state.ask && ![ 'idle', 'checking', 'asking', 'opening'].includes(state.stage) ? [state, [poll(state)]] : null;
  },

  polled(state, event) {
    if (!state.ask || ['idle', 'checking', 'asking', 'opening'].includes(state.stage)) return null;
    const {reply} = event;
    if (reply && reply.ok) return known(state, reply);
    const absent = reply && reply.code === 'unknown_attempt';
    if (absent && (state.stage === 'asked' || state.stage === 'ask_uncertain')) {
      const late = state.stage === 'asked' && event.now - state.ask.at > WAIT;
      const now = {...state, stage: late ? 'ask_uncertain' : state.stage, trouble: null};
      return [now, late ? [save(now)] : []];
    }
    return [{...state, trouble: said(reply)}, []];
  },

  stop_waiting(state) {
    if (state.stage !== 'asked') return null;
    const now = {...state, stage: 'ask_uncertain'};
    return [now, [save(now)]];
  },

  // The person has looked at the source chat, and says so.
  discard(state, event) {
    if (state.stage !== 'ask_uncertain' || event.looked !== true) return null;
    return [initial(), [{do: 'save', value: null}]];
  },

  fresh(state) {
    if (state.stage !== 'ended' && state.stage !== 'opened') return null;
    return [initial(), [{do: 'save', value: null}]];
  },

  open(state, event) {
    if (state.stage !== 'prepared' || state.busy) return null;
    if (event.saved !== undefined && !same(event.saved, state)) {
      const found = readSaved(event.saved);
      if (!found) return refused(state, 'prepared', refusal('other_window'));
      const [other, effects] = resumed(found);
      return [{...other, refusal: refusal('other_window')}, effects];
    }
    const why = refuseBackend(event.capture) || differs(state, event.capture);
    if (why) return refused(state, 'prepared', refusal(why));
    const {ask} = state, args = {attempt_id: ask.attempt, ref: state.ref, workspace: ask.workspace};
    if (ask.model) Object.assign(args, {model: ask.model, provider: ask.provider});
    const now = {...state, stage: 'opening', step: 'begin', refusal: null, recovery: null};
    return [now, [mustSave(now), {do: 'rest', action: 'open_begin', then: 'begun', attempt: ask.attempt, args}]];
  },

  begun(state, event) {
    if (state.stage !== 'opening' || state.step !== 'begin') return null;
    const {reply} = event;
    if (!reply || !reply.ok) {
      const now = {...state, stage: unsure(reply) ? 'open_uncertain' : 'prepared', step: '', refusal: said(reply)};
      return [now, [save(now), poll(now)]];
    }
    const now = {...state, step: 'create', prompt: reply.prompt, status: reply.status};
    const {model, provider} = reply.route;
    return [now, [save(now), {do: 'create', attempt: state.ask.attempt,
      params: {cwd: reply.workspace, ...(model ? {model, provider} : {})}}]];
  },

  created(state, event) {
    if (state.stage !== 'opening' || state.step !== 'create') return null;
    const {attempt} = state.ask;
    if (event.outcome === 'made' && event.session && event.runtime) {
      const now = {...state, step: 'identify', destination: {session: event.session, runtime: event.runtime}};
      return [now, [save(now), {do: 'rest', action: 'open_created', then: 'identified', attempt,
        args: {attempt_id: attempt, session: event.session}}]];
    }
    if (event.outcome === 'refused') {
      const now = {...state, step: 'fail', refusal: refusal('create_refused', event.message)};
      return [now, [save(now), {do: 'rest', action: 'open_failed', then: 'failed', attempt,
        args: {attempt_id: attempt, why: String(event.message || 'refused').slice(0, 500)}}]];
    }
    const now = {...state, stage: 'open_uncertain', step: '', refusal: refusal('create_unknown', event.message)};
    return [now, [save(now), poll(now)]];
  },

  failed(state, event) {
    if (state.stage !== 'opening' || state.step !== 'fail') return null;
    if (event.reply && event.reply.ok) return known(state, event.reply);
    const now = {...state, stage: 'open_uncertain', step: '', refusal: said(event.reply)};
    return [now, [save(now), poll(now)]];
  },

  identified(state, event) {
    if (state.stage !== 'opening' || state.step !== 'identify') return null;
    if (event.reply && event.reply.ok) {
      const now = {...state, step: 'submit', status: event.reply};
      return [now, [save(now), {do: 'submit', attempt: state.ask.attempt,
        runtime: state.destination.runtime, text: state.prompt}]];
    }
    const now = {...state, stage: 'open_uncertain', step: '', refusal: said(event.reply)};
    return [now, [save(now), poll(now)]];
  },

  submitted(state, event) {
    if (state.stage !== 'opening' || state.step !== 'submit') return null;
    const {attempt} = state.ask;
    if (event.outcome === 'sent') {
      const now = {...state, step: 'mark'};
      return [now, [save(now), {do: 'rest', action: 'open_submitted', then: 'marked', attempt, args: {attempt_id: attempt}},
        {do: 'focus', session: state.destination.session}]];
    }
    const now = {...state, stage: 'prompt_uncertain', step: '', refusal: refusal('prompt_unknown', event.message)};
    return [now, [save(now), poll(now)]];
  },

  marked(state, event) {
    if (state.stage !== 'opening' || state.step !== 'mark') return null;
    if (event.reply && event.reply.ok) return known(state, event.reply);
    const now = {...state, stage: 'prompt_uncertain', step: '', refusal: said(event.reply)};
    return [now, [save(now), poll(now)]];
  },

  // A person's decision, or a look at everything that is known.
  decide(state, event) {
    if (!state.ask || state.busy || !decisions(state).includes(event.action)) return null;
    const args = {attempt_id: state.ask.attempt};
    if (event.action === 'abandon') {
      args.reason = event.reason || '';
      if (untold(state.status)) args.owner_is_gone = event.gone === true;
    }
    if (event.action === 'adopt') args.session = event.session || '';
    if (event.action === 'open_created') args.session = state.destination.session;
    return [{...state, busy: event.action, refusal: null}, [{do: 'rest', action: event.action,
      then: 'decided', attempt: state.ask.attempt, args}]];
  },

  decided(state, event) {
    if (!state.ask || state.busy !== event.action) return null;
    const rested = {...state, busy: ''};
    if (!event.reply || !event.reply.ok) return [{...rested, refusal: said(event.reply)}, []];
    if (event.action !== 'recover') return known({...rested, recovery: null}, event.reply);
    const [now, effects] = known(rested, event.reply);
    return [{...now, recovery: event.reply, prompt: event.reply.prompt || now.prompt}, effects];
  },
};

/** Why the frozen attempt is not the one to open here; '' if it is. */
function differs(state, capture) {
  const {ask, frozen} = state;
  if (capture.activeProfile !== ask.profile) return 'other_profile';
  if (capture.activeConnection !== ask.connection) return 'other_connection';
  if (!frozen) return 'not_looked_at';
  const others = frozen.source_session !== ask.session
    || ![frozen.workspace, frozen.workspace_resolved].includes(ask.workspace)
    || (ask.model && (frozen.route.model !== ask.model || frozen.route.provider !== ask.provider));
  return others ? 'frozen_differs' : '';
}

/** Whether only a person can tell that the opener has ended: it is of another machine or container. */
export function untold(status) {
  return ['reserved', 'requested'].includes(status.state) && Boolean(status.reservation) && status.reservation.owner_alive === null;
}

/** What a person may decide now, as buttons. */
export function decisions(state) {
  if (!state.status || ['idle', 'checking', 'asking', 'opening'].includes(state.stage)) return [];
  const allowed = state.status.allowed_next || [];
  const found = [];
  if (['open_uncertain', 'prompt_uncertain', 'opened', 'prepared'].includes(state.stage)) found.push('recover');
  // The host's answer was heard and the journal's was not: only the identity is written down.
  const made = state.stage === 'open_uncertain' && state.destination && state.status.state === 'requested';
  if (made) found.push('open_created');
  for (const name of ['confirm', 'adopt', 'abandon']) {
    if (allowed.includes(name) || (name === 'abandon' && untold(state.status))) found.push(name);
  }
  return found;
}

export function next(state, event) {
  const handler = Object.hasOwn(HANDLERS, event.type) ? HANDLERS[event.type] : null;
  // What comes back late from another attempt is not about this one.
  if (!handler || (event.attempt !== undefined && (!state.ask || event.attempt !== state.ask.attempt))) return [state, []];
  return handler(state, event) || [state, []];
}
