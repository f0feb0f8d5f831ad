"""What an ACP agent asks for, and the answers that it understands.

Permissions are answered by the *kind* of the offered option, never by its id or place, and
never with an "always": that leaks into later tasks in every agent. Agents ask questions in
four ways; each becomes a :class:`~handoff.executors.contract.QuestionAsked`.
"""

from __future__ import annotations

from typing import Any

from handoff.errors import NotAllowed
from handoff.executors import acp_tools
from handoff.executors.acp_state import Ask, Field
from handoff.executors.contract import Choice, PermissionAsked, Question, QuestionAsked
from handoff.wire import acp
from handoff.wire.lenient import lenient

Json = dict[str, Any]


def permission(
    ask_id: str, rpc: int | str, params: Json, known: Json | None, *, title_is_command: bool
) -> tuple[Ask, PermissionAsked | QuestionAsked] | None:
    """A ``session/request_permission``; None if it is none that anybody can answer."""
    request = lenient(acp.PermissionRequest, params)
    if request is None or not request.options:
        return None
    whole = acp_tools.merged(known, request.tool_call)
    tool = acp_tools.fields_of(whole)
    call = tool.tool_call_id or None
    meta = {**(request.meta or {}), **(tool.meta or {})}
    if meta.get("qwenInteractionKind") == "user_question":
        asked = _qwen(ask_id, rpc, request, tool, meta)
        if asked is not None:
            return asked
    once = [option for option in request.options if option.kind == "allow_once"]
    if len(once) > 1:
        return _choice(ask_id, rpc, request, tool, once)
    options: dict[str, str] = {}
    for option in request.options:
        options.setdefault(option.kind, option.option_id)
    ask = Ask(rpc, "permission", options=options, call=call, announced=known is not None)
    before = acp_tools.fields_of(known or {})
    return ask, _permission_asked(ask_id, tool, before, options, title_is_command=title_is_command)


def elicitation(ask_id: str, rpc: int | str, form: acp.Elicitation) -> tuple[Ask, QuestionAsked]:
    """An ``elicitation/create`` with a form."""
    properties = form.requested_schema.get("properties")
    properties = properties if isinstance(properties, dict) else {}
    shaped = {str(k): v for k, v in properties.items() if isinstance(v, dict)}
    notes = {key: _main_of(key, spec, shaped) for key, spec in shaped.items()}
    fields: list[Field] = []
    questions: list[Question] = []
    for key, spec in shaped.items():
        if notes[key] is not None:
            continue
        free = next((note for note, main in notes.items() if main == key), None)
        field, question = _form_field(key, spec, free, form.message, alone=_mains(notes) == 1)
        fields.append(field)
        questions.append(question)
    if not questions:
        questions = [Question(form.message)]
    ask = Ask(rpc, "form", fields=fields, call=form.tool_call_id)
    return ask, QuestionAsked(ask_id, tuple(questions), form.tool_call_id)


def ask_user(ask_id: str, rpc: int | str, asked: acp.AskUser) -> tuple[Ask, QuestionAsked]:
    """An ``_x.ai/ask_user_question``."""
    ask = Ask(rpc, "xai", keys=[q.question for q in asked.questions], call=asked.tool_call_id)
    questions = tuple(_plain(question) for question in asked.questions)
    return ask, QuestionAsked(ask_id, questions, asked.tool_call_id)


def allow(ask: Ask) -> Json:
    """The answer that allows once.

    Raises:
        NotAllowed: the agent offers no such answer, or it asked a question.
    """
    _must_be_permission(ask)
    option = ask.options.get("allow_once")
    if option is None:
        offered = ", ".join(sorted(ask.options)) or "nothing"
        raise NotAllowed(
            f"the executor offers no way to allow this once (it offers: {offered})",
            remedy="deny it, with a reason that tells the executor another way",
            offered=sorted(ask.options),
        )
    return acp.selected(option)


def deny(ask: Ask) -> Json:
    """The answer that denies once; "cancelled" where the agent offers none.

    Raises:
        NotAllowed: it asked a question.
    """
    _must_be_permission(ask)
    option = ask.options.get("reject_once")
    return acp.cancelled() if option is None else acp.selected(option)


def answer(ask: Ask, answers: tuple[tuple[str, ...], ...]) -> Json:
    """The answer to a question. No answers at all: the question is declined.

    Raises:
        NotAllowed: it asked for a permission, or takes only its own choices.
    """
    if ask.kind == "permission":
        raise NotAllowed(
            "this is a permission: it is allowed or denied, not answered",
            remedy="handoff reply --approve, or --deny",
        )
    given = any(any(words) for words in answers)
    if ask.kind == "form":
        return _form_answer(ask, answers) if given else {"action": "decline"}
    if ask.kind == "xai":
        if not given:
            return {"outcome": "cancelled"}
        pairs = zip(ask.keys, answers, strict=False)
        told = {q: (words[0] if len(words) == 1 else list(words)) for q, words in pairs if words}
        return {"outcome": "accepted", "answers": told}
    if ask.kind == "qwen":
        if not given or "allow_once" not in ask.options:
            return give_up(ask)
        told = {str(n): ", ".join(words) for n, words in enumerate(answers) if words}
        return {**acp.selected(ask.options["allow_once"]), "answers": told}
    return _choice_answer(ask, answers)


def give_up(ask: Ask) -> Json:
    """The answer for a turn that is interrupted."""
    if ask.kind == "form":
        return {"action": "cancel"}
    if ask.kind == "xai":
        return {"outcome": "cancelled"}
    return acp.cancelled()


def _must_be_permission(ask: Ask) -> None:
    if ask.kind != "permission":
        raise NotAllowed(
            "this is a question: it is answered, not allowed or denied",
            remedy="handoff reply --answer TEXT",
        )


def _permission_asked(
    ask_id: str,
    tool: acp.ToolFields,
    before: acp.ToolFields,
    options: dict[str, str],
    *,
    title_is_command: bool,
) -> PermissionAsked:
    """``before``: the tool call as it was told before the request, where that says more."""
    raw = tool.raw_input if isinstance(tool.raw_input, dict) else {}
    parts = [tool.title or "", acp_tools.text_of(tool)]
    if isinstance(raw.get("description"), str):
        parts.append(raw["description"])
    if "allow_once" not in options:
        offered = ", ".join(sorted(options))
        parts.append(f"(It can't be allowed once: the executor offers only {offered}.)")
    told = "\n".join(dict.fromkeys(part for part in parts if part))
    reason = raw.get("reason") or raw.get("justification")
    name = acp_tools.name_of(tool)
    command = acp_tools.command_of(tool) or acp_tools.command_of(before)
    if command is None and title_is_command and tool.kind == "execute":
        command = tool.title
    cwd = acp_tools.cwd_of(tool) or acp_tools.cwd_of(before)
    paths = acp_tools.paths_of(tool)
    return PermissionAsked(
        id=ask_id,
        tool=name,
        kind=acp_tools.kind_of(tool) or "other",
        title=tool.title or name,
        text=told,
        raw=acp_tools.raw_of(tool) or acp_tools.raw_of(before),
        command=command,
        cwd=cwd,
        paths=tuple(path for path in paths if command is None or path != cwd),
        edits=acp_tools.edits_of(tool),
        reason=reason if isinstance(reason, str) else None,
        tool_call_id=tool.tool_call_id or None,
    )


def _plain(question: acp.AskQuestion) -> Question:
    choices = tuple(Choice(o.label, o.description) for o in question.options)
    return Question(question.question, question.header, choices, question.multi_select)


def _qwen(
    ask_id: str, rpc: int | str, request: acp.PermissionRequest, tool: acp.ToolFields, meta: Json
) -> tuple[Ask, QuestionAsked] | None:
    listed = meta.get("qwenQuestions")
    if not isinstance(listed, list) and isinstance(tool.raw_input, dict):
        listed = tool.raw_input.get("questions")
    asked = lenient(acp.AskUser, {"questions": listed})
    if asked is None or not asked.questions:
        return None
    options = {option.kind: option.option_id for option in reversed(request.options)}
    call = tool.tool_call_id or None
    ask = Ask(rpc, "qwen", options=options, call=call, announced=True)
    return ask, QuestionAsked(ask_id, tuple(_plain(q) for q in asked.questions), call)


def _choice(
    ask_id: str,
    rpc: int | str,
    request: acp.PermissionRequest,
    tool: acp.ToolFields,
    once: list[acp.Option],
) -> tuple[Ask, QuestionAsked]:
    """Several ways to allow once are not a permission: somebody has to choose."""
    text = "\n".join(part for part in (tool.title, acp_tools.text_of(tool)) if part)
    labels = {option.name or option.option_id: option.option_id for option in once}
    options = {option.kind: option.option_id for option in reversed(request.options)}
    ask = Ask(
        rpc,
        "choice",
        options=options,
        labels=labels,
        call=tool.tool_call_id or None,
        announced=True,
    )
    question = Question(text or "Choose one", choices=tuple(Choice(label) for label in labels))
    return ask, QuestionAsked(ask_id, (question,), tool.tool_call_id or None)


def _choice_answer(ask: Ask, answers: tuple[tuple[str, ...], ...]) -> Json:
    wanted = answers[0][0] if answers and answers[0] else ""
    if not wanted:
        return deny_choice(ask)
    by_name = {label.casefold(): option for label, option in ask.labels.items()}
    option = by_name.get(wanted.strip().casefold())
    if option is None:
        offered = ", ".join(f"'{label}'" for label in ask.labels)
        raise NotAllowed(
            f"the executor takes only one of its own choices here: {offered}",
            remedy=f"answer with one of them: {offered}",
            choices=list(ask.labels),
        )
    return acp.selected(option)


def deny_choice(ask: Ask) -> Json:
    """The answer that takes none of the choices."""
    option = ask.options.get("reject_once")
    return acp.cancelled() if option is None else acp.selected(option)


# -- forms ---------------------------------------------------------------------------------


def _mains(notes: dict[str, str | None]) -> int:
    return sum(1 for main in notes.values() if main is None)


def _main_of(key: str, spec: Json, shaped: dict[str, Json]) -> str | None:
    """The property that this one takes a free answer for, None if it is one of its own."""
    meta = spec.get("_meta")
    codex = meta.get("codex") if isinstance(meta, dict) else None
    if isinstance(codex, dict) and codex.get("role") == "user_note":
        named = codex.get("questionId")
        return str(named) if named in shaped else None
    for suffix in ("_custom", "_note", "_other"):
        main = key.removesuffix(suffix)
        if main != key and main in shaped:
            return main
    return None


def _form_field(
    key: str, spec: Json, free: str | None, message: str, *, alone: bool
) -> tuple[Field, Question]:
    kind = spec.get("type")
    kind = kind if isinstance(kind, str) else "string"
    items = spec.get("items")
    choices = _choices(items if kind == "array" and isinstance(items, dict) else spec)
    values = {choice.label: const for choice, const in choices}
    title, described = _text(spec.get("title")), _text(spec.get("description"))
    meta = spec.get("_meta")
    if isinstance(meta, dict) and "codex" in meta:
        text, header = title or message, described
    elif alone:
        text, header = message or title, title if message else ""
    else:
        text, header = described or title or key, title if described else ""
    other = next(
        (c for label, c in values.items() if label.casefold() in ("none of the above", "other")),
        None,
    )
    field = Field(key, kind, values, free, other if free is not None else None)
    shown = tuple(choice for choice, const in choices if const != field.other)
    return field, Question(text, header, shown, multiple=kind == "array")


def _choices(spec: Json) -> list[tuple[Choice, str]]:
    found: list[tuple[Choice, str]] = []
    for key in ("oneOf", "anyOf"):
        listed = spec.get(key)
        for entry in listed if isinstance(listed, list) else []:
            if isinstance(entry, dict) and isinstance(entry.get("const"), str):
                label = _text(entry.get("title")) or entry["const"]
                found.append((Choice(label, _text(entry.get("description"))), entry["const"]))
    if not found:
        listed, names = spec.get("enum"), spec.get("enumNames")
        for number, value in enumerate(listed if isinstance(listed, list) else []):
            named = isinstance(names, list) and number < len(names)
            label = str(names[number]) if named and names is not None else str(value)
            found.append((Choice(label), str(value)))
    return found


def _form_answer(ask: Ask, answers: tuple[tuple[str, ...], ...]) -> Json:
    content: Json = {}
    for field, words in zip(ask.fields, answers, strict=False):
        chosen = [field.values[word] for word in words if word in field.values]
        typed = [word for word in words if word not in field.values and word]
        if typed and field.free is not None:
            content[field.free] = ", ".join(typed)
            if field.other is not None and not chosen:
                chosen = [field.other]
        else:
            chosen += typed
        if chosen:
            content[field.key] = _value(field, chosen)
    return {"action": "accept", "content": content}


def _value(field: Field, chosen: list[str]) -> Any:
    if field.type == "array":
        return chosen
    word = chosen[0] if len(chosen) == 1 else ", ".join(chosen)
    try:
        if field.type == "integer":
            return int(word)
        if field.type == "number":
            return float(word)
    except ValueError:
        raise NotAllowed(
            f"the executor wants a number here, not '{word}'", remedy="answer with a number"
        ) from None
    if field.type == "boolean":
        lowered = word.strip().casefold()
        if lowered in ("yes", "true", "y", "1"):
            return True
        if lowered in ("no", "false", "n", "0"):
            return False
        raise NotAllowed(
            f"the executor wants yes or no here, not '{word}'", remedy="answer yes or no"
        )
    return word


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""
