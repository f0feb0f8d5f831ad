"""The completion scripts, made from the parsers. ``scripts/gen-docs`` writes them to
``completions/``, where ``handoff completion`` reads them."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from argparse import Action

    from handoff.cli.parsing import Parser


#: kinds of words that are asked for: the hidden command that prints them
ASKED = {"task": "_ids", "node": "_nodes"}


class Words:
    """What one command takes: ``flags`` (name, help, whether a value follows, its choices), and
    for each of its arguments ``places``: ``task``, ``node``, its choices, or "" for anything.
    ``many``: the kind of all that follow."""

    def __init__(self, name: str, about: str, made: Parser) -> None:
        self.name = name
        self.about = about
        self.flags: list[tuple[str, str, bool, list[str]]] = []
        self.places: list[str] = []
        self.many = ""
        for action in made._actions:
            if action.help != "==SUPPRESS==":
                self._add(action)

    @property
    def choices(self) -> list[str]:
        """Of its first argument."""
        kind = self.places[0] if self.places else ""
        return [] if kind in ASKED else kind.split()

    def _add(self, action: Action) -> None:
        choices = [str(choice) for choice in action.choices or []]
        if action.option_strings:
            text = (action.help or "").replace("'", "").replace("`", "")
            if action.option_strings[-1] == "--node" and self.name.startswith("nodes "):
                choices = ["node"]
            self.flags.append((action.option_strings[-1], text, action.nargs != 0, choices))
            return
        self.places.append(self._kind(action.dest) or " ".join(choices))
        if action.nargs in {"*", "+"}:
            self.many = self.places[-1]

    def _kind(self, dest: str) -> str:
        if dest == "task":
            return "task"
        known = {"node", "name", "names"}
        # a new node has a new name
        of_nodes = self.name.startswith("nodes ") and self.name != "nodes pair"
        return "node" if of_nodes and dest in known else ""


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
        first, second = [*words.places, "", ""][:2]
        if words.many and len(words.places) < 2:
            second = words.many
        kinds = f'first="{first}"; second="{second}"; many="{words.many}"'
        name = f'"{words.name}"' if " " in words.name else words.name
        cases.append(f'    {name}) flags="{flags}"; {kinds} ;;')
        for flag, _, takes, choices in words.flags:
            if takes:
                valued.add(flag)
            if choices:
                choices_of[flag] = choices
    names = " ".join(words.name for words in commands())
    values = "\n".join(
        f"    {flag}) _handoff_words '{chr(32).join(choices)}'; return ;;"
        for flag, choices in choices_of.items()
    )
    return _BASH.format(
        names=names,
        cases="\n".join(cases),
        valued="|".join(sorted(valued)),
        values=values,
        groups="|".join(groups()),
        asked="\n".join(
            f'    {kind}) words="$("${{COMP_WORDS[0]}}" {words} 2>/dev/null)" ;;'
            for kind, words in _BASH_ASKED.items()
        ),
    )


_BASH_ASKED = {"task": '"${globals[@]}" _ids', "node": '_nodes "${brain[@]}"'}

_BASH = """\
# bash completion for handoff
_handoff_words() {{
  local words="$1" line
  case "$1" in
{asked}
  esac
  if [[ "$1" == node ]]; then # a name may hold blanks
    while IFS= read -r line; do
      if [[ -n "$line" && "$line" == "$cur"* ]]; then COMPREPLY+=("$line"); fi
    done <<<"$words"
  else
    COMPREPLY=($(compgen -W "$words" -- "$cur"))
  fi
}}
_handoff() {{
  local cur prev command="" at first="" second="" many="" kind="" flags="" rest="" globals=() brain=()
  cur="${{COMP_WORDS[COMP_CWORD]}}"
  prev="${{COMP_WORDS[COMP_CWORD-1]}}"
  COMPREPLY=()
  local position=0
  for ((at = 1; at < COMP_CWORD; at++)); do
    case "${{COMP_WORDS[at]}}" in
      --) rest=1; break ;;
      --brain) brain=(--brain "${{COMP_WORDS[at+1]}}"); ((at++)) ;;
      --agentd|--target|--config) globals+=("${{COMP_WORDS[at]}}" "${{COMP_WORDS[at+1]}}"); ((at++)) ;;
      {valued}) ((at++)) ;;
      -*) ;;
      *)
        if [[ -z "$command" ]]; then command="${{COMP_WORDS[at]}}"
        elif [[ "$command" =~ ^({groups})$ ]]; then command="$command ${{COMP_WORDS[at]}}"
        else ((position++)); fi ;;
    esac
  done
  if [[ -n "$rest" ]]; then
    COMPREPLY=($(compgen -c -f -- "$cur"))
    return
  fi
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
    return
  fi
  case "$position" in
    0) kind="$first" ;;
    1) kind="$second" ;;
    *) kind="$many" ;;
  esac
  if [[ -n "$kind" ]]; then
    _handoff_words "$kind"
  else
    COMPREPLY=($(compgen -f -- "$cur"))
  fi
}}
complete -o filenames -F _handoff handoff
"""


def zsh_text(text: str) -> str:
    """A text within a specification of zsh's."""
    for sign in '\\[]:$"':
        text = text.replace(sign, "\\" + sign)
    return text


def _zsh_kind(kind: str) -> str:
    return f"_handoff_{kind}s" if kind in ASKED else f"({kind})" if kind else "_files"


def zsh() -> str:
    """The script for zsh."""
    rows = "\n".join(f"    '{w.name}:{zsh_text(w.about)}'" for w in commands())
    cases: list[str] = []
    inner: dict[str, list[str]] = {name: [] for name in groups()}
    for words in everything():
        group, _, verb = words.name.partition(" ")
        specs = []
        for flag, text, takes, choices in words.flags:
            value = f":value:{_zsh_kind(' '.join(choices))}" if takes else ""
            specs.append(f"'*{flag}[{zsh_text(text)}]{value}'")
        specs += [f"'{at}:what:{_zsh_kind(kind)}'" for at, kind in enumerate(words.places, 1)]
        specs.append(f"'*:what:{_zsh_kind(words.many)}'")
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
_handoff_nodes() {{
  local -a names
  names=(${{(f)"$(handoff _nodes 2>/dev/null)"}})
  compadd -a names
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


def _fish_kind(kind: str) -> str:
    return f"(handoff {ASKED[kind]} 2>/dev/null)" if kind in ASKED else kind


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
        for kind in dict.fromkeys(filter(None, words.places)):
            lines.append(f"complete -c handoff -n '{seen}' -a '{_fish_kind(kind)}'")
        for flag, text, takes, choices in words.flags:
            value = (
                f" -x -a '{_fish_kind(' '.join(choices))}'" if choices else " -r" if takes else ""
            )
            name = flag.removeprefix("--")
            lines.append(f"complete -c handoff -n '{seen}' -l {name}{value} -d '{text}'")
    return "\n".join(lines) + "\n"


def scripts() -> dict[str, str]:
    """Shell -> its script."""
    return {"bash": bash(), "zsh": zsh(), "fish": fish()}
