// Handoff in Hermes' web dashboard: the attempts of the profile, what is known of each, and what
// a person decides. A chat is handed over, and a new session opened, in Hermes Desktop or in a
// terminal: the dashboard has no focused chat.
(function () {
  'use strict';
  const SDK = window.__HERMES_PLUGIN_SDK__;
  const {React} = SDK;
  const h = React.createElement;
  const base = document.currentScript ? document.currentScript.src : '/dashboard-plugins/hermes-handoff/index.js';
  const modules = Promise.all(['texts.mjs', 'panel.mjs', 'flow.mjs'].map((name) => import(new URL(name, base).href)));

  async function call(action, args) {
    try {
      const reply = await SDK.fetchJSON('/api/plugins/hermes-handoff/call', {
        method: 'POST', headers: {'Content-Type': 'application/json'}, body: JSON.stringify({action, arguments: args}),
      });
      if (reply && typeof reply.ok === 'boolean') return reply;
    } catch (error) {
      return {ok: false, code: 'unreachable', message: String((error && error.message) || error).slice(0, 500)};
    }
    return {ok: false, code: 'unreachable', message: ''};
  }

  const problem = (reply) => ({code: reply.code, message: reply.message, remedy: reply.remedy,
    keys: (reply.details && reply.details.findings) || []});

  function Attempts({say, ui, untold}) {
    const [attempts, setAttempts] = React.useState(null);
    const [refusal, setRefusal] = React.useState(null);
    const [chosen, setChosen] = React.useState('');
    const [recovery, setRecovery] = React.useState(null);
    const [busy, setBusy] = React.useState(false);
    const [told, setTold] = React.useState('');

    const load = async () => {
      const reply = await call('opening_status', {});
      if (reply.ok) setAttempts(reply.attempts.slice().reverse());
      setRefusal(reply.ok ? null : problem(reply));
    };
    React.useEffect(() => { void load(); }, []);

    const status = (attempts || []).find((one) => one.attempt_id === chosen);
    const decide = async (action, more) => {
      if (busy || !status) return;
      setBusy(true);
      const reply = await call(action, {attempt_id: status.attempt_id, ...more});
      setBusy(false);
      if (!reply.ok) {
        setRefusal(problem(reply));
        return;
      }
      setRefusal(null);
      setRecovery(action === 'recover' ? reply : null);
      const now = reply.status || reply;
      setTold(now.explain);
      setAttempts((attempts || []).map((one) => (one.attempt_id === now.attempt_id ? now : one)));
    };
    const may = (name) => Boolean(status && status.allowed_next.includes(name));

    return h('div', null,
      h('p', {style: ui.grey}, say('limits_dashboard')),
      h('h3', {id: 'handoff-attempts'}, say('attempts')),
      h(ui.Button, {label: say('refresh'), onClick: () => void load()}),
      h('p', {role: 'status', 'aria-live': 'polite', id: 'handoff-state'}, told),
      h(ui.Refusal, {refusal}),
      attempts && !attempts.length ? h('p', null, say('nothing')) : null,
      attempts && attempts.length ? h('table', {'aria-labelledby': 'handoff-attempts', style: {width: '100%', textAlign: 'left'}},
        h('thead', null, h('tr', null, [say('attempt'), say('stage'), say('certainty'), ''].map((name) => h('th', {key: name, scope: 'col'}, name)))),
        h('tbody', null, attempts.map((one) => h('tr', {key: one.attempt_id, 'aria-current': one.attempt_id === chosen ? 'true' : undefined},
          h('td', null, one.attempt_id), h('td', null, one.state), h('td', null, say(one.certainty)),
          h('td', null, h(ui.Button, {label: `${say('pick')} ${one.attempt_id}`, onClick: () => { setChosen(one.attempt_id); setRecovery(null); setTold(one.explain); }})))))) : null,
      status ? h('div', null,
        h(ui.Facts, {status}),
        h('div', {role: 'group', 'aria-label': say('allowed_next')},
          h(ui.Button, {label: say('recover'), disabled: busy, onClick: () => void decide('recover')}),
          may('confirm') ? h(ui.Button, {label: say('confirm'), disabled: busy, onClick: () => void decide('confirm')}) : null,
          may('abandon') || untold(status) ? h(ui.Abandon, {busy, ask: untold(status),
            decide: (reason, gone) => void decide('abandon', {reason, ...(gone ? {owner_is_gone: true} : {})})}) : null),
        recovery ? h(ui.Recovery, {recovery, adopt: may('adopt') ? (session) => void decide('adopt', {session}) : null}) : null,
        recovery && recovery.prompt ? h('section', {style: ui.box}, h('p', null, say('prompt')), h(ui.Text, null, recovery.prompt)) : null) : null);
  }

  function Page() {
    const [loaded, setLoaded] = React.useState(null);
    const [failed, setFailed] = React.useState('');
    React.useEffect(() => {
      modules.then(([{texts}, {panels}, {untold}]) => {
        const say = texts(document.documentElement.lang || navigator.language);
        setLoaded({say, ui: panels(React, say), untold});
      }, (error) => setFailed(String(error)));
    }, []);
    return h('section', {'aria-labelledby': 'handoff-title', style: {padding: '1rem', maxWidth: '64rem'}},
      h('h2', {id: 'handoff-title'}, 'Handoff'),
      failed ? h('p', {role: 'alert'}, failed) : loaded ? h(Attempts, loaded) : null);
  }

  window.__HERMES_PLUGINS__.register('hermes-handoff', Page);
}());
