// What Desktop page and dashboard page both show, given the host's React and texts.

export function panels(React, say) {
  const h = React.createElement;
  const grey = {color: 'var(--ui-text-secondary, inherit)'};
  const box = {border: '1px solid var(--ui-stroke-secondary, currentColor)', borderRadius: '6px', padding: '0.75rem', margin: '0.75rem 0'};
  const wrap = {whiteSpace: 'pre-wrap', overflowWrap: 'anywhere', margin: 0, maxHeight: '24rem', overflow: 'auto'};

  function Button({label, onClick, disabled, why, primary, id}) {
    const looks = {padding: '0.35rem 0.8rem', borderRadius: '6px', margin: '0 0.5rem 0.25rem 0', cursor: disabled ? 'not-allowed' : 'pointer',
      border: '1px solid var(--ui-stroke-secondary, currentColor)', opacity: disabled ? 0.6 : 1, fontWeight: primary ? 600 : 400};
    // aria-disabled, so that the keyboard reaches the button and hears why it does nothing.
    return h('button', {type: 'button', id, style: looks, 'aria-disabled': disabled ? 'true' : undefined,
      'aria-describedby': disabled && why ? why : undefined, onClick: disabled ? undefined : onClick}, label);
  }

  function Field({id, label, value, onChange, disabled, type}) {
    return h('div', {style: {margin: '0.35rem 0'}},
      h('label', {htmlFor: id, style: {display: 'block'}}, label),
      h('input', {id, type: type || 'text', value, disabled, spellCheck: false, autoComplete: 'off',
        onChange: (event) => onChange(event.target.value), style: {width: '100%', maxWidth: '40rem', font: 'inherit',
          background: 'transparent', color: 'inherit', border: '1px solid var(--ui-stroke-secondary, currentColor)', borderRadius: '4px', padding: '0.25rem 0.4rem'}}));
  }

  function Row({name, children}) {
    return [h('dt', {key: 't' + name, style: grey}, name),
      h('dd', {key: 'd' + name, style: {margin: 0, overflowWrap: 'anywhere'}}, children)];
  }

  function List({rows}) {
    return h('dl', {style: {display: 'grid', gridTemplateColumns: 'max-content 1fr', gap: '0.15rem 1rem', margin: 0}},
      rows.map(([name, value]) => h(React.Fragment, {key: name}, Row({name, children: value}))));
  }

  const mark = (value) => say(value === true ? 'yes' : value === false ? 'no' : 'unknown');
  const joined = (values) => (values && values.length ? values.map((one) => (typeof one === 'string' ? one : JSON.stringify(one))).join(', ') : say('nothing'));

  /** An attempt's status: what was reached, apart from success. */
  function Facts({status}) {
    const reached = ['requested', 'session_identified', 'handoff_read', 'acknowledged', 'user_confirmed'];
    const exit = status.child_exit;
    return h('section', {'aria-labelledby': 'handoff-facts', style: box},
      h('h3', {id: 'handoff-facts', style: {marginTop: 0}}, say('facts')),
      h('p', {style: {margin: '0 0 0.5rem 0'}}, status.explain),
      h(List, {rows: [
        [say('attempt'), status.attempt_id], [say('record'), status.ref], [say('stage'), status.state],
        ...reached.map((name) => [say(name), mark(status[name])]),
        [say('child_exit'), exit === null || exit === undefined ? say('nothing') : typeof exit === 'string' ? exit : JSON.stringify(exit)],
        ['resume_verified', String(status.resume_verified)],
        [say('certainty'), say(status.certainty)],
        [say('allowed_next'), joined(status.allowed_next)],
        ...(status.anomalies && status.anomalies.length ? [[say('anomalies'), joined(status.anomalies)]] : []),
      ]}),
      h('p', {style: grey}, say('no_proof')));
  }

  /** All that recovery shows; the choices are the page's buttons. */
  function Recovery({recovery, adopt}) {
    return h('section', {'aria-labelledby': 'handoff-recovery', style: box},
      h('h3', {id: 'handoff-recovery', style: {marginTop: 0}}, say('recover')),
      h('h4', null, say('events')),
      h('ol', null, (recovery.events || []).map((one) => h('li', {key: one.seq}, `${one.kind}, ${one.actor}`))),
      h('h4', null, say('candidates')),
      (recovery.candidates || []).length
        ? h('ul', null, recovery.candidates.map((one) => h('li', {key: one.session_id},
          `${one.session_id} (${one.messages}) ${one.title || ''} `,
          adopt ? h(Button, {label: say('adopt'), onClick: () => adopt(one.session_id)}) : null)))
        : h('p', null, recovery.candidates_note || say('nothing')),
      (recovery.commands || []).length ? h('div', null, h('h4', null, say('commands')),
        h('pre', {style: wrap}, recovery.commands.map((one) => one.command).join('\n'))) : null);
  }

  function Refusal({refusal}) {
    if (!refusal) return null;
    const id = 'refusal_' + refusal.code, own = say(id);
    const findings = (refusal.keys || []).map((one) => (typeof one === 'string' ? one : `${one.code}: ${one.message}`));
    return h('div', {role: 'alert', style: {...box, borderWidth: '2px'}},
      h('strong', null, own === id ? refusal.code : own), refusal.message ? h('p', null, refusal.message) : null,
      findings.length ? h('ul', null, findings.map((one) => h('li', {key: one}, one))) : null,
      refusal.remedy ? h('p', {style: grey}, refusal.remedy) : null);
  }

  /** Giving an attempt up: a reason, and a person's word where nothing else can tell. */
  function Abandon({busy, ask, decide}) {
    const [reason, setReason] = React.useState('');
    const [gone, setGone] = React.useState(false);
    return h('div', null,
      h(Field, {id: 'handoff-reason', label: say('reason'), value: reason, onChange: setReason}),
      ask ? h('div', null,
        h('input', {id: 'handoff-gone', type: 'checkbox', checked: gone, onChange: (event) => setGone(event.target.checked)}),
        h('label', {htmlFor: 'handoff-gone'}, ' ' + say('gone'))) : null,
      h(Button, {label: say('abandon'), disabled: busy || !reason.trim() || (ask && !gone), onClick: () => decide(reason, ask && gone)}));
  }

  const Text = ({children}) => h('pre', {style: wrap, tabIndex: 0}, children);
  return {Abandon, Button, Field, List, Facts, Recovery, Refusal, Text, box, grey};
}
