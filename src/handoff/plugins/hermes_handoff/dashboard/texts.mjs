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

export const TEXTS = {en: EN, it: IT};

/** text('it') -> a function from an id to its text; English where there is no translation. */
export function texts(language) {
  const own = String(language || '').toLowerCase().split(/[-_]/)[0] === 'it' ? IT : {};
  return (id) => own[id] ?? EN[id] ?? id;
}
