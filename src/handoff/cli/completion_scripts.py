"""The completion scripts, made from the parsers. ``scripts/gen-docs`` writes them to
``completions/``, where ``handoff completion`` reads them."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import Action

    from handoff.cli.parsing import Parser


class Words:
    """What one command takes: ``flags`` (name, help, whether a value follows, its choices),
    ``choices`` of its first argument, and whether that is a task."""

    def __init__(self, name: str, about: str, made: Parser) -> None:
        self.name = name
        self.about = about
        self.flags: list[tuple[str, str, bool, list[str]]] = []
        self.choices: list[str] = []
        self.task = False
        for action in made._actions:
            if action.help != "==SUPPRESS==":
                self._add(action)

    def _add(self, action: Action) -> None:
        choices = [str(choice) for choice in action.choices or []]
        if action.option_strings:
            text = (action.help or "").replace("'", "").replace("`", "")
            self.flags.append((action.option_strings[-1], text, action.nargs != 0, choices))
        elif action.dest == "task":
            self.task = True
        elif choices and not self.choices:
            self.choices = choices


def commands() -> list[Words]:
    """All commands, from their parsers."""
    return [words for words in everything() if " " not in words.name]


def everything() -> list[Words]:
    """All commands, and the verbs of those that are groups (``session list``)."""
    from handoff.cli.main import parsers, table

    return [
        Words(full, about if full == name else str(made.description).split("\n")[0], made)
        for name, (_, about) in table().items()
        for full, made in parsers(name)
    ]


def groups() -> list[str]:
    """The commands that have verbs."""
    return sorted({words.name.split()[0] for words in everything() if " " in words.name})


def bash() -> str:
    """The script for bash."""
    cases, valued = [], {"--agentd", "--target", "--config"}
    choices_of = {}
    for words in everything():
        flags = " ".join(flag for flag, *_ in words.flags)
        kind = "task" if words.task else " ".join(words.choices)
        name = f'"{words.name}"' if " " in words.name else words.name
        cases.append(f'    {name}) flags="{flags}"; first="{kind}" ;;')
        for flag, _, takes, choices in words.flags:
            if takes:
                valued.add(flag)
            if choices:
                choices_of[flag] = choices
    names = " ".join(words.name for words in commands())
    values = "\n".join(
        f"    {flag}) COMPREPLY=($(compgen -W '{chr(32).join(choices)}' -- \"$cur\")); return ;;"
        for flag, choices in choices_of.items()
    )
    return _BASH.format(
        names=names,
        cases="\n".join(cases),
        valued="|".join(sorted(valued)),
        values=values,
        groups="|".join(groups()),
    )


_BASH = """\
# bash completion for handoff
_handoff() {{
  local cur prev command="" at first="" flags="" globals=()
  cur="${{COMP_WORDS[COMP_CWORD]}}"
  prev="${{COMP_WORDS[COMP_CWORD-1]}}"
  COMPREPLY=()
  local position=0
  for ((at = 1; at < COMP_CWORD; at++)); do
    case "${{COMP_WORDS[at]}}" in
      --agentd|--target|--config) globals+=("${{COMP_WORDS[at]}}" "${{COMP_WORDS[at+1]}}"); ((at++)) ;;
      {valued}) ((at++)) ;;
      -*) ;;
      *)
        if [[ -z "$command" ]]; then command="${{COMP_WORDS[at]}}"
        elif [[ "$command" =~ ^({groups})$ ]]; then command="$command ${{COMP_WORDS[at]}}"
        else ((position++)); fi ;;
    esac
  done
  case "$prev" in
{values}
    --config|--worktree|--path) COMPREPLY=($(compgen -f -- "$cur")); return ;;
    {valued}) return ;;
  esac
  if [[ -z "$command" ]]; then
    if [[ "$cur" == -* ]]; then
      COMPREPLY=($(compgen -W "--help --version --json --agentd --target --config" -- "$cur"))
    else
      COMPREPLY=($(compgen -W "{names}" -- "$cur"))
    fi
    return
  fi
  case "$command" in
{cases}
    *) return ;;
  esac
  if [[ "$cur" == -* ]]; then
    COMPREPLY=($(compgen -W "$flags" -- "$cur"))
  elif [[ "$first" == task && $position -eq 0 ]]; then
    COMPREPLY=($(compgen -W "$("${{COMP_WORDS[0]}}" "${{globals[@]}}" _ids 2>/dev/null)" -- "$cur"))
  elif [[ -n "$first" && "$first" != task && $position -eq 0 ]]; then
    COMPREPLY=($(compgen -W "$first" -- "$cur"))
  else
    COMPREPLY=($(compgen -f -- "$cur"))
  fi
}}
complete -o filenames -F _handoff handoff
"""


def _zsh_text(text: str) -> str:
    for sign in '\\[]:$"':
        text = text.replace(sign, "\\" + sign)
    return text


def zsh() -> str:
    """The script for zsh."""
    rows = "\n".join(f"    '{w.name}:{_zsh_text(w.about)}'" for w in commands())
    cases: list[str] = []
    inner: dict[str, list[str]] = {name: [] for name in groups()}
    for words in everything():
        group, _, verb = words.name.partition(" ")
        specs = []
        for flag, text, takes, choices in words.flags:
            value = f":value:({' '.join(choices)})" if choices else ":value:_files" if takes else ""
            specs.append(f"'*{flag}[{_zsh_text(text)}]{value}'")
        if words.task:
            specs.append("'1:task:_handoff_tasks'")
        elif words.choices:
            specs.append(f"'1:what:({' '.join(words.choices)})'")
        specs.append("'*:file:_files'")
        if verb:
            inner[group].append(f"        {verb}) _arguments {' '.join(specs)} ;;")
        elif group not in inner:
            cases.append(f"    {group}) _arguments {' '.join(specs)} ;;")
    for group, verbs in inner.items():
        names = " ".join(verb.split(")")[0].strip() for verb in verbs)
        lines = "\n".join(verbs)
        cases.append(_ZSH_GROUP.format(group=group, names=names, cases=lines))
    return _ZSH.format(rows=rows, cases="\n".join(cases))


_ZSH_GROUP = """\
    {group})
      if (( CURRENT == 2 )); then
        compadd {names}
        return
      fi
      local verb=$words[2]
      shift words
      (( CURRENT-- ))
      case $verb in
{cases}
      esac ;;"""

_ZSH = """\
#compdef handoff
_handoff_tasks() {{
  local -a ids
  ids=(${{(f)"$(handoff _ids 2>/dev/null)"}})
  compadd -a ids
}}
_handoff() {{
  local -a commands
  commands=(
{rows}
  )
  if (( CURRENT == 2 )); then
    _describe command commands
    return
  fi
  local command=$words[2]
  shift words
  (( CURRENT-- ))
  case $command in
{cases}
  esac
}}
if [[ $zsh_eval_context[-1] == loadautofunc ]]; then _handoff "$@"; else compdef _handoff handoff; fi
"""


def fish() -> str:
    """The script for fish."""
    lines = ["# fish completion for handoff", "complete -c handoff -f"]
    names = " ".join(words.name for words in commands())
    top = f"not __fish_seen_subcommand_from {names}"
    for words in commands():
        lines.append(f"complete -c handoff -n '{top}' -a {words.name} -d '{words.about}'")
    for words in everything():
        group, _, verb = words.name.partition(" ")
        seen = f"__fish_seen_subcommand_from {group}"
        if verb:
            seen += f"; and __fish_seen_subcommand_from {verb}"
        elif group in groups():
            seen += f"; and not __fish_seen_subcommand_from {' '.join(words.choices)}"
        else:  # a verb may have a command's name
            seen += f"; and not __fish_seen_subcommand_from {' '.join(groups())}"
        if words.task:
            lines.append(f"complete -c handoff -n '{seen}' -a '(handoff _ids 2>/dev/null)'")
        elif words.choices:
            lines.append(f"complete -c handoff -n '{seen}' -a '{' '.join(words.choices)}'")
        for flag, text, takes, choices in words.flags:
            value = f" -x -a '{' '.join(choices)}'" if choices else " -r" if takes else ""
            name = flag.removeprefix("--")
            lines.append(f"complete -c handoff -n '{seen}' -l {name}{value} -d '{text}'")
    return "\n".join(lines) + "\n"


def scripts() -> dict[str, str]:
    """Shell -> its script."""
    return {"bash": bash(), "zsh": zsh(), "fish": fish()}
