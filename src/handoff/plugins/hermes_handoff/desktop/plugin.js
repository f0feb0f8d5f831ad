// Handoff in Hermes Desktop: the sidebar's page. The app loads this one file as it is and gives
// it React and its SDK; nothing else can be imported. What is between the marks is a copy of
// the modules in ../dashboard, made by scripts/gen-desktop: change them there.
import * as React from 'react';
import * as sdk from '@hermes/plugin-sdk';

// <modules>
// -- flow.mjs
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

const FORMAT = 1;
/** ms that the source chat has before the page stops expecting an attempt */
const WAIT = 15 * 60 * 1000;
const STAGES = ['idle', 'checking', 'asking', 'asked', 'ask_uncertain', 'prepared',
  'opening', 'open_uncertain', 'prompt_uncertain', 'opened', 'ended'];
const STEPS = ['', 'begin', 'create', 'identify', 'submit', 'mark', 'fail'];
/** stages in which the journal is asked again and again */
const POLLED = ['asked', 'ask_uncertain', 'open_uncertain', 'prompt_uncertain', 'opened'];
const TERMINAL = ['launch_failed', 'closed', 'abandoned', 'superseded'];
const ENTRIES = ['request', 'attempt', 'session', 'runtime', 'profile', 'connection', 'workspace',
  'model', 'provider', 'writerModel', 'writerProvider', 'locale'];
const TOKEN = /^[A-Za-z0-9][A-Za-z0-9._-]{7,63}$/;
const DRIVE = /^[A-Za-z]:[\\/]/;

function initial() {
  return {stage: 'idle', step: '', ask: null, ref: '', status: null, frozen: null, prompt: '',
    destination: null, recovery: null, refusal: null, trouble: null, busy: ''};
}

// -- what stands against it ----------------------------------------------------------------

const refusal = (code, message = '', remedy = '', keys = []) => ({code, message, remedy, keys});

/** Why nothing may be sent to or opened on this back end; '' if nothing stands against it. */
function refuseBackend(capture) {
  if (!capture || capture.gateway !== 'open') return 'gateway_closed';
  if (!capture.profile || !capture.activeProfile) return 'profile_unknown';
  if (capture.profile !== capture.activeProfile) return 'other_profile';
  if (!capture.connection || !capture.activeConnection) return 'connection_unknown';
  if (capture.connection !== capture.activeConnection) return 'other_connection';
  if (capture.mode !== 'local') return 'remote_gateway';
  return '';
}

/** Why the focused chat can't be asked; '' if it can. */
function refuseCapture(capture) {
  if (!capture || !capture.runtime) return 'no_chat';
  const why = refuseBackend(capture);
  if (why) return why;
  if (!capture.session) return 'chat_not_saved';
  return capture.busy ? 'chat_busy' : '';
}

/** What is wrong with what the person entered; '' if nothing. */
function refuseForm(form) {
  const path = form.workspace || '';
  if (!(path.startsWith('/') || DRIVE.test(path))) return 'workspace_relative';
  if (/[\0\r\n]/.test(path)) return 'workspace_lines';
  if (Boolean(form.model) !== Boolean(form.provider)) return 'model_half';
  if (Boolean(form.writerModel) !== Boolean(form.writerProvider)) return 'writer_half';
  return form.writerModel && form.acceptCost !== true ? 'writer_cost' : '';
}

/** The one message that the source chat gets. Every value is JSON: none can end its line. */
function askText(ask) {
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
function readSaved(value) {
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
function settle(stage, status) {
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
function untold(status) {
  return ['reserved', 'requested'].includes(status.state) && Boolean(status.reservation) && status.reservation.owner_alive === null;
}

/** What a person may decide now, as buttons. */
function decisions(state) {
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

function next(state, event) {
  const handler = Object.hasOwn(HANDLERS, event.type) ? HANDLERS[event.type] : null;
  // What comes back late from another attempt is not about this one.
  if (!handler || (event.attempt !== undefined && (!state.ask || event.attempt !== state.ask.attempt))) return [state, []];
  return handler(state, event) || [state, []];
}

// -- texts.mjs
// What the page says. Each text is fixed: nothing of a record, a chat or a model is in it.

const EN = {
  title: 'Handoff',
  limits: 'Hands this chat over to one new session. The chat is asked once to write an immutable record; '
    + 'the new session reads it, says what has changed, and waits for you. Nothing is moved, and the chat stays open. '
    + 'Only chats of the active profile on this computer can be handed over; bots and other gateways can not.',
  limits_dashboard: 'What the journal of this profile knows of each attempt to open a new session. A chat is handed over, '
    + 'and a session opened, in Hermes Desktop or in a terminal.',
  prepare: 'Prepare handoff from chat',
  open: 'Open new session',
  workspace: 'Workspace (absolute path of the project)',
  destination: 'Model of the new session (optional; otherwise the one this chat used last)',
  writer: 'Other model as the writer of the summary (optional)',
  model: 'Model',
  provider: 'Provider',
  cost: 'I accept that asking the other model may cost money, each time.',
  source: 'Source chat',
  none: 'no chat is focused',
  attempt: 'Attempt',
  record: 'Record',
  route: 'Model',
  stage: 'State',
  facts: 'What the journal knows',
  no_proof: 'None of these proves that the work went on. resume_verified is always false.',
  yes: 'yes',
  no: 'no',
  unknown: 'unknown',
  requested: 'requested',
  session_identified: 'identified',
  handoff_read: 'read',
  acknowledged: 'acknowledged',
  user_confirmed: 'confirmed by a person',
  child_exit: 'exit',
  certainty: 'certainty',
  certain: 'certain',
  uncertain: 'uncertain',
  allowed_next: 'Possible next',
  anomalies: 'Anomalies',
  nothing: 'nothing',
  recover: 'Inspect',
  confirm: 'Confirm the new session',
  adopt: 'This is the session',
  open_created: 'Write down the session that was made',
  abandon: 'Give the attempt up',
  reason: 'Why it is given up',
  gone: 'Its opener is of another machine or container: I have made sure that it has ended.',
  discard: 'I have looked at the source chat: drop this request',
  looked: 'I have looked at the source chat.',
  stop_waiting: 'Stop waiting',
  fresh: 'Begin anew',
  refresh: 'Look again',
  focus: 'Show the new session',
  source_focus: 'Show the source chat',
  events: 'Events',
  candidates: 'Sessions that it may have made',
  commands: 'The same in a terminal',
  prompt: 'The opening prompt. Paste it into the new session yourself, if it is not there.',
  preview: 'Show the record',
  discrepancies: 'Changed since',
  attempts: 'Attempts of this profile',
  pick: 'Show',

  stage_idle: 'Nothing was asked.',
  stage_checking: 'The chat and the folder are being looked at; nothing was sent.',
  stage_asking: 'The source chat is being asked.',
  stage_asked: 'The source chat was asked, once. Waiting for it to prepare the attempt.',
  stage_ask_uncertain: 'Whether the source chat was asked, or what came of it, is not known. Inspect the source chat. '
    + 'It is not asked again by itself; if the attempt appears, it is shown here.',
  stage_prepared: 'The attempt is frozen; nothing was started.',
  stage_opening: 'The new session is being opened. Leave this page open.',
  stage_open_uncertain: 'A start was written down and no new session has shown itself: it may exist, or another opener '
    + 'is at work. Inspect before anything else. Nothing is opened again. If nothing can be decided yet, '
    + 'its opener is still alive: end it (for the page: restart Hermes), then look again.',
  stage_prompt_uncertain: 'The new session exists; whether it has its opening prompt is not known. It is not sent again by '
    + 'itself, since that may cost twice. Look at the new session; if the prompt is missing, paste it there yourself.',
  stage_opened: 'The new session has its opening prompt.',
  stage_ended: 'The attempt is over.',

  refusal_no_chat: 'No chat is focused. Select the chat that is to be handed over.',
  refusal_gateway_closed: 'There is no connection to the back end.',
  refusal_profile_unknown: 'The profile of the chat or of the back end is not known.',
  refusal_other_profile: 'The chat and the back end are of different profiles. Switch to the chat\u2019s own profile.',
  refusal_connection_unknown: 'Which connection the chat belongs to is not known.',
  refusal_other_connection: 'The chat belongs to another connection than the active one.',
  refusal_remote_gateway: 'The back end is on another computer; that is not supported.',
  refusal_chat_not_saved: 'The chat is not saved yet: it has no messages.',
  refusal_chat_busy: 'The chat is busy. Wait until it is idle.',
  refusal_workspace_relative: 'Give the workspace as an absolute path.',
  refusal_workspace_lines: 'The workspace must be one line.',
  refusal_model_half: 'Give model and provider of the new session, or neither.',
  refusal_writer_half: 'Give model and provider of the writer, or neither.',
  refusal_writer_cost: 'Another writer may cost money: accept that, or leave it out.',
  refusal_writer_consent: 'Another writer needs the profile owner\u2019s consent. Set these keys to true in the profile\u2019s configuration:',
  refusal_focus_changed: 'Another chat got the focus meanwhile. Nothing was sent.',
  refusal_not_sent: 'The chat was not asked: the host refused.',
  refusal_storage_failed: 'The page could not save what it is about to do, so it did not do it.',
  refusal_other_window: 'Another window has gone on with a handoff meanwhile; this is how it stands.',
  refusal_not_looked_at: 'The frozen attempt was not looked at yet.',
  refusal_frozen_differs: 'The attempt was frozen for another chat, workspace or model than was asked for. It is not opened here.',
  refusal_create_refused: 'The host made no session.',
  refusal_create_unknown: 'Whether the host made a session is not known.',
  refusal_prompt_unknown: 'Whether the new session got its opening prompt is not known.',
  refusal_unreachable: 'The plugin\u2019s back end did not answer. Is the plugin enabled in this profile?',
};

/** The two buttons, as Hermes Handoff has always named them in Italian. */
const IT = {
  prepare: 'Prepara handoff dalla chat',
  open: 'Apri nuova sessione',
};

const TEXTS = {en: EN, it: IT};

/** text('it') -> a function from an id to its text; English where there is no translation. */
function texts(language) {
  const own = String(language || '').toLowerCase().split(/[-_]/)[0] === 'it' ? IT : {};
  return (id) => own[id] ?? EN[id] ?? id;
}

// -- panel.mjs
// What Desktop page and dashboard page both show, given the host's React and texts.

function panels(React, say) {
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
// </modules>

const h = React.createElement;
const KEY = 'flow';
const PATH = '/handoff';
const POLL_MS = 2000;
const REST_MS = 60000;

const read = (atom) => (atom && typeof atom.get === 'function' ? atom.get() : undefined);

function useAtom(atom) {
  const [value, set] = React.useState(() => read(atom));
  React.useEffect(() => {
    if (!atom || typeof atom.subscribe !== 'function') return undefined;
    return atom.subscribe(() => set(read(atom)));
  }, [atom]);
  return value;
}

/** The focused chat and the active back end, as the app has them at this moment. */
async function look() {
  const {host} = sdk, state = host.state || {};
  const runtime = read(state.focusedSessionId) || '';
  const owner = read(state.focusedSessionOwner) || {};
  const activeProfile = read(state.profile) || '';
  const profile = owner.profile || read(state.focusedSessionProfile) || '';
  // Routes that can't be had make the connection an unknown one, which is refused.
  const routes = await Promise.resolve().then(() => host.profileRoutes()).catch(() => []);
  const own = (Array.isArray(routes) ? routes : []).filter((one) => one && (one.profile === activeProfile || one.targetProfile === activeProfile));
  const named = read(state.connectionId) || '';
  // Without a name of its own, the active connection is known only if just one serves the profile.
  const route = named ? own.find((one) => one.connectionId === named) : own.length === 1 ? own[0] : undefined;
  const activeConnection = (route && route.connectionId) || '';
  const theirs = (Array.isArray(routes) ? routes : []).filter((one) => one && (one.profile === profile || one.targetProfile === profile));
  const connection = owner.connectionId || (theirs.length === 1 ? theirs[0].connectionId : named && profile === activeProfile ? named : '');
  const busy = read(state.busyBySession) || {};
  return {runtime, session: read(state.focusedStoredSessionId) || '', profile, activeProfile, connection, activeConnection,
    mode: (route && route.mode) || '', gateway: read(state.gateway) || '',
    busy: busy[runtime] === true || read(state.busy) === true || read(state.awaitingResponse) === true};
}

/** What a failed request proves. The gateway's own refusals come before it does anything. */
function proved(error) {
  const code = error && error.code;
  const before = typeof code === 'number' && ((code >= 4000 && code < 5000) || [-32600, -32601, -32602].includes(code));
  return before ? 'refused' : 'unknown';
}

const words = (error) => String((error && error.message) || error || '').slice(0, 500);

function token(prefix) {
  const bytes = crypto.getRandomValues(new Uint8Array(12));
  return prefix + Array.from(bytes, (one) => one.toString(16).padStart(2, '0')).join('');
}

/** One flow of one window: the state, and the carrying out of what it asks for. */
function makeFlow(ctx) {
  let state = initial();
  const listeners = new Set();

  async function rest(action, args) {
    try {
      const reply = await ctx.rest('/call', {method: 'POST', body: {action, arguments: args}, timeoutMs: REST_MS});
      if (reply && typeof reply === 'object' && typeof reply.ok === 'boolean') return reply;
    } catch (error) {
      return {ok: false, lost: true, code: 'unreachable', message: words(error)};
    }
    return {ok: false, lost: true, code: 'unreachable', message: ''};
  }

  async function perform(effect) {
    const {attempt} = effect;
    if (effect.do === 'save') {
      if (effect.value === null) ctx.storage.remove(KEY);
      else ctx.storage.set(KEY, effect.value);
      // A store that drops what it is given is no store.
      if (JSON.stringify(ctx.storage.get(KEY, null)) !== JSON.stringify(effect.value)) throw new Error('not saved');
    }
    if (effect.do === 'rest') {
      const reply = await rest(effect.action, effect.args);
      const capture = effect.then === 'captured' ? await look().catch(() => null) : undefined;
      dispatch({type: effect.then, attempt, action: effect.action, reply, capture, now: Date.now()});
    }
    if (effect.do === 'ask' || effect.do === 'submit') {
      const type = effect.do === 'ask' ? 'asked' : 'submitted';
      try {
        const reply = await sdk.host.request('prompt.submit', {session_id: effect.runtime, text: effect.text});
        dispatch({type, attempt, outcome: reply && typeof reply === 'object' ? 'sent' : 'unknown'});
      } catch (error) {
        dispatch({type, attempt, outcome: proved(error), message: words(error)});
      }
    }
    if (effect.do === 'create') {
      try {
        const made = await sdk.host.request('session.create', effect.params);
        dispatch({type: 'created', attempt, outcome: 'made', session: (made && made.stored_session_id) || '', runtime: (made && made.session_id) || ''});
      } catch (error) {
        dispatch({type: 'created', attempt, outcome: proved(error), message: words(error)});
      }
    }
    if (effect.do === 'focus' && typeof sdk.host.openSession === 'function') {
      try {
        await sdk.host.openSession(effect.session, {});
      } catch (error) { /* the session is there, in the list of sessions */ }
    }
  }

  async function carryOut(effects) {
    for (const effect of effects) {
      try {
        if (effect.do === 'rest' || effect.do === 'create') void perform(effect);
        else await perform(effect);
      } catch (error) {
        if (effect.do === 'save') {
          dispatch({type: 'save_failed'});
          if (effect.must) return;
        }
      }
    }
  }

  function dispatch(event) {
    const [now, effects] = next(state, event);
    state = now;
    for (const listener of listeners) listener(state);
    void carryOut(effects);
  }

  return {
    dispatch,
    get: () => state,
    saved: () => ctx.storage.get(KEY, null),
    rest,
    subscribe(listener) {
      listeners.add(listener);
      return () => listeners.delete(listener);
    },
  };
}

function language() {
  return (typeof document === 'object' && document.documentElement.lang) || navigator.language || 'en';
}

function Page({flow}) {
  const say = React.useMemo(() => texts(language()), []);
  const ui = React.useMemo(() => panels(React, say), [say]);
  const [state, setState] = React.useState(flow.get());
  const [capture, setCapture] = React.useState(null);
  const [form, setForm] = React.useState({workspace: '', model: '', provider: '', writerModel: '', writerProvider: '', acceptCost: false});
  const [shown, setShown] = React.useState(null);
  const hosts = sdk.host.state || {};
  const seen = ['focusedSessionId', 'focusedStoredSessionId', 'focusedSessionProfile', 'focusedSessionOwner', 'profile',
    'connectionId', 'gateway', 'busy', 'busyBySession', 'awaitingResponse', 'cwd'].map((name) => useAtom(hosts[name]));

  React.useEffect(() => flow.subscribe(setState), [flow]);
  React.useEffect(() => {
    let live = true;
    look().then((found) => live && setCapture(found), () => live && setCapture(null));
    return () => { live = false; };
  }, seen);
  React.useEffect(() => {
    if (!POLLED.includes(state.stage)) return undefined;
    const timer = setInterval(() => flow.dispatch({type: 'poll'}), POLL_MS);
    return () => clearInterval(timer);
  }, [state.stage, flow]);

  const {stage} = state;
  const edit = (name) => (value) => setForm({...form, [name]: value});
  const free = stage === 'idle' || stage === 'ended';
  const noAsk = free ? refuseForm(form) || refuseCapture(capture) : 'stage_' + stage;
  const noOpen = stage === 'prepared' ? refuseBackend(capture) : 'stage_' + stage;
  const why = (code) => (code.startsWith('stage_') ? say(code) : say('refusal_' + code));
  const saved = () => {
    try { return flow.saved(); } catch (error) { return null; }
  };
  const prepare = async () => flow.dispatch({type: 'prepare', form, capture: await look().catch(() => null), saved: saved(),
    ids: {request: token('desk-'), attempt: token('desk-')}, locale: language().toLowerCase().startsWith('it') ? 'it' : 'en', now: Date.now()});
  const open = async () => flow.dispatch({type: 'open', capture: await look().catch(() => null), saved: saved()});
  const decide = (action, more) => flow.dispatch({type: 'decide', action, ...more});
  const show = async () => setShown(await flow.rest('show', {ref: state.ref, workspace: state.ask.workspace, budget: 16384}));
  const choices = decisions(state);

  return h('main', {'aria-labelledby': 'handoff-title', style: {height: '100%', overflow: 'auto', padding: '1rem', maxWidth: '60rem'}},
    h('h2', {id: 'handoff-title'}, say('title')),
    h('p', {style: ui.grey}, say('limits')),
    h('p', null, `${say('source')}: `, h('span', {id: 'handoff-source'}, (state.ask && !free ? state.ask.session : capture && capture.session) || say('none'))),
    // Enter in a field sends nothing: a turn costs.
    h('form', {onSubmit: (event) => event.preventDefault()},
      h(ui.Field, {id: 'handoff-workspace', label: say('workspace'), value: free ? form.workspace : state.ask.workspace, onChange: edit('workspace'), disabled: !free}),
      h('fieldset', {style: ui.box}, h('legend', null, say('destination')),
        h(ui.Field, {id: 'handoff-model', label: say('model'), value: form.model, onChange: edit('model'), disabled: !free}),
        h(ui.Field, {id: 'handoff-provider', label: say('provider'), value: form.provider, onChange: edit('provider'), disabled: !free})),
      h('fieldset', {style: ui.box}, h('legend', null, say('writer')),
        h(ui.Field, {id: 'handoff-writer-model', label: say('model'), value: form.writerModel, onChange: edit('writerModel'), disabled: !free}),
        h(ui.Field, {id: 'handoff-writer-provider', label: say('provider'), value: form.writerProvider, onChange: edit('writerProvider'), disabled: !free}),
        form.writerModel || form.writerProvider ? h('div', null,
          h('input', {id: 'handoff-cost', type: 'checkbox', checked: form.acceptCost, disabled: !free, onChange: (event) => edit('acceptCost')(event.target.checked)}),
          h('label', {htmlFor: 'handoff-cost'}, ' ' + say('cost'))) : null),
      h('div', null,
        h(ui.Button, {id: 'handoff-prepare', label: say('prepare'), primary: true, disabled: Boolean(noAsk), why: 'handoff-why', onClick: prepare}),
        h(ui.Button, {id: 'handoff-open', label: say('open'), primary: true, disabled: Boolean(noOpen), why: 'handoff-why', onClick: open}))),
    h('p', {id: 'handoff-why', style: ui.grey}, stage === 'prepared' ? (noOpen ? why(noOpen) : '') : free && noAsk ? why(noAsk) : ''),
    h('p', {id: 'handoff-state', role: 'status', 'aria-live': 'polite', 'data-stage': stage}, say('stage_' + stage)),
    h(ui.Refusal, {refusal: state.refusal}),
    h(ui.Refusal, {refusal: state.trouble}),
    h('div', null,
      stage === 'asked' ? h(ui.Button, {label: say('stop_waiting'), onClick: () => flow.dispatch({type: 'stop_waiting'})}) : null,
      stage === 'ask_uncertain' ? h(ui.Button, {label: say('discard'), onClick: () => flow.dispatch({type: 'discard', looked: true})}) : null,
      state.ask && stage !== 'opening' && !free ? h(ui.Button, {label: say('refresh'), onClick: () => flow.dispatch({type: 'poll'})}) : null,
      ['asked', 'ask_uncertain'].includes(stage) && sdk.host.openSession ? h(ui.Button, {label: say('source_focus'), onClick: () => void sdk.host.openSession(state.ask.session, {})}) : null,
      state.destination && sdk.host.openSession ? h(ui.Button, {label: say('focus'), onClick: () => void sdk.host.openSession(state.destination.session, {})}) : null,
      stage === 'ended' || stage === 'opened' ? h(ui.Button, {label: say('fresh'), onClick: () => { setShown(null); flow.dispatch({type: 'fresh'}); }}) : null),
    choices.length ? h('div', {role: 'group', 'aria-label': say('allowed_next')},
      choices.includes('recover') ? h(ui.Button, {label: say('recover'), disabled: Boolean(state.busy), onClick: () => decide('recover')}) : null,
      choices.includes('open_created') ? h(ui.Button, {label: say('open_created'), disabled: Boolean(state.busy), onClick: () => decide('open_created')}) : null,
      choices.includes('confirm') ? h(ui.Button, {label: say('confirm'), disabled: Boolean(state.busy), onClick: () => decide('confirm')}) : null,
      choices.includes('abandon') ? h(ui.Abandon, {busy: Boolean(state.busy), ask: untold(state.status), decide: (reason, gone) => decide('abandon', {reason, gone})}) : null) : null,
    state.frozen && !free ? h('section', {style: ui.box},
      h(ui.List, {rows: [[say('record'), state.ref], ['SHA-256', state.frozen.document_sha256], [say('workspace'), state.frozen.workspace],
        [say('route'), `${state.frozen.route.model} (${state.frozen.route.provider}), ${state.frozen.route.origin}`]]}),
      h(ui.Button, {label: say('preview'), onClick: () => void show()}),
      shown ? (shown.ok ? h('div', null, h('h4', null, say('discrepancies')),
        shown.discrepancies && shown.discrepancies.length ? h('ul', null, shown.discrepancies.map((one) => h('li', {key: one.code}, `${one.severity}: ${one.message} (${one.code})`))) : h('p', null, say('nothing')),
        h(ui.Text, null, shown.document)) : h(ui.Refusal, {refusal: {code: shown.code, message: shown.message, remedy: shown.remedy}})) : null) : null,
    state.status && state.status.state ? h(ui.Facts, {status: state.status}) : null,
    state.recovery ? h(ui.Recovery, {recovery: state.recovery, adopt: choices.includes('adopt') ? (session) => decide('adopt', {session}) : null}) : null,
    ['prompt_uncertain', 'open_uncertain'].includes(stage) && state.prompt ? h('section', {style: ui.box}, h('p', null, say('prompt')), h(ui.Text, null, state.prompt)) : null);
}

export default {
  id: 'hermes-handoff',
  name: 'Handoff',
  defaultEnabled: false,
  register(ctx) {
    const flow = makeFlow(ctx);
    let saved = null;
    try { saved = ctx.storage.get(KEY, null); } catch (error) { saved = null; }
    flow.dispatch({type: 'restore', saved});
    ctx.register({id: 'page', area: sdk.ROUTES_AREA, data: {path: PATH}, render: () => h(Page, {flow})});
    ctx.register({id: 'nav', area: sdk.SIDEBAR_NAV_AREA, data: {path: PATH, label: 'Handoff', codicon: 'arrow-swap'}});
  },
};
