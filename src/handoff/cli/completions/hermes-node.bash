# bash completion for hermes-node
_hermes_node() {
  local cur="${COMP_WORDS[COMP_CWORD]}" verb="" at flags="" first="" position=0
  COMPREPLY=()
  for ((at = 1; at < COMP_CWORD; at++)); do
    case "${COMP_WORDS[at]}" in
      --allow|--config|--name|--pin|--server|--token-file|-n) ((at++)) ;;
      -*) ;;
      *) if [[ -z "$verb" ]]; then verb="${COMP_WORDS[at]}"; else ((position++)); fi ;;
    esac
  done
  case "${COMP_WORDS[COMP_CWORD-1]}" in
    --allow|--config|--name|--pin|--server|--token-file|-n) COMPREPLY=($(compgen -f -- "$cur")); return ;;
  esac
  case "$verb" in
    "") flags="--config --json --help --version"; first="pair run status stop validate doctor policy asks approve deny lock unlock logs service completion" ;;
    pair) flags="--help --config --json --name --server --token-file --pin --plugin --allow"; first="" ;;
    run) flags="--help --config --json --take-over"; first="" ;;
    status) flags="--help --config --json"; first="" ;;
    stop) flags="--help --config --json --keep"; first="" ;;
    validate) flags="--help --config --json"; first="" ;;
    doctor) flags="--help --config --json"; first="" ;;
    policy) flags="--help --config --json"; first="" ;;
    asks) flags="--help --config --json"; first="" ;;
    approve) flags="--help --config --json"; first="" ;;
    deny) flags="--help --config --json"; first="" ;;
    lock) flags="--help --config --json"; first="" ;;
    unlock) flags="--help --config --json"; first="" ;;
    logs) flags="--help --config --json -n --verify"; first="" ;;
    service) flags="--help --config --json"; first="systemd launchd" ;;
    completion) flags="--help --config --json"; first="bash zsh fish" ;;
  esac
  if [[ "$cur" == -* ]]; then
    COMPREPLY=($(compgen -W "$flags" -- "$cur"))
  elif [[ -n "$first" && $position -eq 0 ]]; then
    COMPREPLY=($(compgen -W "$first" -- "$cur"))
  fi
}
complete -o filenames -F _hermes_node hermes-node
