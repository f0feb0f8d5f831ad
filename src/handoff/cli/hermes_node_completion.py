"""The completion scripts of ``hermes-node``, made from its parser. ``scripts/gen-docs`` writes
them to ``completions/``, where ``hermes-node completion`` reads them: TAB starts no Python."""

from __future__ import annotations

import argparse

from handoff.cli.completion_scripts import Words, zsh_text
from handoff.cli.hermes_node_parsing import VERBS, parser

__all__ = ["scripts"]


def everything() -> list[Words]:
    """All verbs with what they take."""
    (sub,) = (one for one in parser()._actions if isinstance(one, argparse._SubParsersAction))
    return [Words(name, VERBS[name], made) for name, made in sub.choices.items()]


def bash() -> str:
    """The script for bash."""
    cases, valued = [], set()
    for words in everything():
        flags = " ".join(flag for flag, *_ in words.flags)
        first = words.places[0] if words.places else ""
        cases.append(f'    {words.name}) flags="{flags}"; first="{first}" ;;')
        valued |= {flag for flag, _, takes, _ in words.flags if takes}
    return _BASH.format(
        verbs=" ".join(VERBS), cases="\n".join(cases), valued="|".join(sorted(valued))
    )


_BASH = """\
# bash completion for hermes-node
_hermes_node() {{
  local cur="${{COMP_WORDS[COMP_CWORD]}}" verb="" at flags="" first="" position=0
  COMPREPLY=()
  for ((at = 1; at < COMP_CWORD; at++)); do
    case "${{COMP_WORDS[at]}}" in
      {valued}) ((at++)) ;;
      -*) ;;
      *) if [[ -z "$verb" ]]; then verb="${{COMP_WORDS[at]}}"; else ((position++)); fi ;;
    esac
  done
  case "${{COMP_WORDS[COMP_CWORD-1]}}" in
    {valued}) COMPREPLY=($(compgen -f -- "$cur")); return ;;
  esac
  case "$verb" in
    "") flags="--config --json --help --version"; first="{verbs}" ;;
{cases}
  esac
  if [[ "$cur" == -* ]]; then
    COMPREPLY=($(compgen -W "$flags" -- "$cur"))
  elif [[ -n "$first" && $position -eq 0 ]]; then
    COMPREPLY=($(compgen -W "$first" -- "$cur"))
  fi
}}
complete -o filenames -F _hermes_node hermes-node
"""


def zsh() -> str:
    """The script for zsh."""
    rows = "\n".join(f"    '{name}:{zsh_text(about)}'" for name, about in VERBS.items())
    cases = []
    for words in everything():
        specs = [
            f"'*{flag}[{zsh_text(text)}]{':value:_files' if takes else ''}'"
            for flag, text, takes, _ in words.flags
        ]
        if words.choices:
            specs.append(f"'1:what:({' '.join(words.choices)})'")
        cases.append(f"    {words.name}) _arguments {' '.join(specs)} ;;")
    return _ZSH.format(rows=rows, cases="\n".join(cases))


_ZSH = """\
#compdef hermes-node
_hermes_node() {{
  local -a verbs
  verbs=(
{rows}
  )
  if (( CURRENT == 2 )); then
    _describe verb verbs
    return
  fi
  local verb=$words[2]
  shift words
  (( CURRENT-- ))
  case $verb in
{cases}
  esac
}}
if [[ $zsh_eval_context[-1] == loadautofunc ]]; then
  _hermes_node "$@"
else
  compdef _hermes_node hermes-node
fi
"""


def fish() -> str:
    """The script for fish."""
    lines = ["# fish completion for hermes-node", "complete -c hermes-node -f"]
    top = f"not __fish_seen_subcommand_from {' '.join(VERBS)}"
    for words in everything():
        lines.append(f"complete -c hermes-node -n '{top}' -a {words.name} -d '{words.about}'")
        seen = f"__fish_seen_subcommand_from {words.name}"
        if words.choices:
            lines.append(f"complete -c hermes-node -n '{seen}' -a '{' '.join(words.choices)}'")
        for flag, text, takes, _ in words.flags:
            name = f"-s {flag[1]}" if len(flag) == 2 else f"-l {flag.removeprefix('--')}"
            value = " -r -F" if takes else ""
            lines.append(f"complete -c hermes-node -n '{seen}' {name}{value} -d '{text}'")
    return "\n".join(lines) + "\n"


def scripts() -> dict[str, str]:
    """Shell -> its script."""
    return {"bash": bash(), "zsh": zsh(), "fish": fish()}
