# bash completion for handoff
_handoff() {
  local cur prev command="" at first="" flags="" globals=()
  cur="${COMP_WORDS[COMP_CWORD]}"
  prev="${COMP_WORDS[COMP_CWORD-1]}"
  COMPREPLY=()
  local position=0
  for ((at = 1; at < COMP_CWORD; at++)); do
    case "${COMP_WORDS[at]}" in
      --agentd|--target|--config) globals+=("${COMP_WORDS[at]}" "${COMP_WORDS[at+1]}"); ((at++)) ;;
      --abandon|--address|--adopt|--agentd|--answer|--attempt-id|--attribution|--base|--brain|--branch|--budget|--code|--config|--constraint|--cursor|--cwd|--digest|--env|--exclude|--executor|--extract|--first-step|--from|--host|--idle|--if-match|--keep-last|--key|--length|--limit|--listen|--locale|--manifest|--mode|--model|--name|--new-branch|--node|--note|--offset|--older-than|--page|--parent|--path|--port|--profile|--project|--prompt|--provider|--queue-until|--reason|--request-id|--require|--rounds|--seed|--session|--settings|--sha256|--shell|--source|--state|--suite|--supersedes|--surface|--tag|--target|--ticket|--timeout|--tokens|--ttl|--verify|--workspace|--worktree|--write|-n) ((at++)) ;;
      -*) ;;
      *)
        if [[ -z "$command" ]]; then command="${COMP_WORDS[at]}"
        elif [[ "$command" =~ ^(nodes|session)$ ]]; then command="$command ${COMP_WORDS[at]}"
        else ((position++)); fi ;;
    esac
  done
  case "$prev" in
    --state) COMPREPLY=($(compgen -W 'pending running waiting_answer waiting_review completed failed' -- "$cur")); return ;;
    --host) COMPREPLY=($(compgen -W 'hermes claude codex opencode other' -- "$cur")); return ;;
    --surface) COMPREPLY=($(compgen -W 'cli desktop any' -- "$cur")); return ;;
    --locale) COMPREPLY=($(compgen -W 'en it' -- "$cur")); return ;;
    --suite) COMPREPLY=($(compgen -W 'A B C D' -- "$cur")); return ;;
    --require) COMPREPLY=($(compgen -W 'any e2e e2e2' -- "$cur")); return ;;
    --config|--worktree|--path) COMPREPLY=($(compgen -f -- "$cur")); return ;;
    --abandon|--address|--adopt|--agentd|--answer|--attempt-id|--attribution|--base|--brain|--branch|--budget|--code|--config|--constraint|--cursor|--cwd|--digest|--env|--exclude|--executor|--extract|--first-step|--from|--host|--idle|--if-match|--keep-last|--key|--length|--limit|--listen|--locale|--manifest|--mode|--model|--name|--new-branch|--node|--note|--offset|--older-than|--page|--parent|--path|--port|--profile|--project|--prompt|--provider|--queue-until|--reason|--request-id|--require|--rounds|--seed|--session|--settings|--sha256|--shell|--source|--state|--suite|--supersedes|--surface|--tag|--target|--ticket|--timeout|--tokens|--ttl|--verify|--workspace|--worktree|--write|-n) return ;;
  esac
  if [[ -z "$command" ]]; then
    if [[ "$cur" == -* ]]; then
      COMPREPLY=($(compgen -W "--help --version --json --agentd --target --config" -- "$cur"))
    else
      COMPREPLY=($(compgen -W "init agentd doctor demo dispatch wait reply continue done stop interrupt resume tasks show attach diff fetch run status session mcp nodes project footprint reclaim completion version" -- "$cur"))
    fi
    return
  fi
  case "$command" in
    init) flags="--help --agentd --target --config --json --executor"; first="" ;;
    agentd) flags="--help --agentd --target --config --json --executor --listen --detach"; first="" ;;
    doctor) flags="--help --agentd --target --config --json"; first="" ;;
    demo) flags="--help --agentd --target --config --json --yes --executor --keep"; first="" ;;
    dispatch) flags="--help --agentd --target --config --json --prompt --from --name --project --executor --model --new-worktree --worktree --in-place --branch --new-branch --base --allow-dirty --no-sync-check --verify --no-setup --profile --detach --no-terminal"; first="" ;;
    wait) flags="--help --agentd --target --config --json --follow --until-done --timeout --notify --no-sync"; first="task" ;;
    reply) flags="--help --agentd --target --config --json --ticket --approve --deny --answer --reason"; first="task" ;;
    continue) flags="--help --agentd --target --config --json"; first="task" ;;
    done) flags="--help --agentd --target --config --json --note --record --profile --workspace"; first="task" ;;
    stop) flags="--help --agentd --target --config --json"; first="task" ;;
    interrupt) flags="--help --agentd --target --config --json"; first="task" ;;
    resume) flags="--help --agentd --target --config --json --force"; first="task" ;;
    tasks) flags="--help --agentd --target --config --json --state --project --limit"; first="" ;;
    show) flags="--help --agentd --target --config --json --ticket --plan --all"; first="task" ;;
    attach) flags="--help --agentd --target --config --json --all --no-follow"; first="task" ;;
    diff) flags="--help --agentd --target --config --json --stat --name-only --base --uncommitted"; first="task" ;;
    fetch) flags="--help --agentd --target --config --json"; first="task" ;;
    run) flags="--help --agentd --target --config --json --timeout"; first="task" ;;
    status) flags="--help --agentd --target --config --json"; first="" ;;
    session) flags="--help --agentd --target --config --json"; first="create evidence sweep list search show read log validate verify prepare open status ack confirm recover abandon export import bind prune purge verify-release bench" ;;
    "session create") flags="--help --config --json --profile --host --session --workspace --request-id --name --parent --attribution --dry-run --strict --allow-stale"; first="" ;;
    "session evidence") flags="--help --config --json --profile --host --session --workspace --path"; first="" ;;
    "session sweep") flags="--help --config --json --profile --host --idle --dry-run"; first="" ;;
    "session list") flags="--help --config --json --profile --host --source --workspace --limit --cursor"; first="" ;;
    "session search") flags="--help --config --json --profile --host --workspace --limit --cursor"; first="" ;;
    "session show") flags="--help --config --json --profile --host --workspace --budget --state"; first="" ;;
    "session read") flags="--help --config --json --profile --host --session --workspace --attempt-id --page"; first="" ;;
    "session log") flags="--help --config --json --profile --host"; first="" ;;
    "session validate") flags="--help --config --json --profile --host"; first="" ;;
    "session verify") flags="--help --config --json --profile --host"; first="" ;;
    "session prepare") flags="--help --config --json --profile --host --session --workspace --attempt-id --model --provider --surface --locale --allow-parallel --supersedes"; first="" ;;
    "session open") flags="--help --config --json --profile --host --workspace --attempt-id --model --provider --yes --show-goal"; first="" ;;
    "session status") flags="--help --config --json --profile --host"; first="" ;;
    "session ack") flags="--help --config --json --profile --host --session --attempt-id --digest --constraint --code --first-step --workspace"; first="" ;;
    "session confirm") flags="--help --config --json --profile --host"; first="" ;;
    "session recover") flags="--help --config --json --profile --host --adopt --abandon --show-prompt --owner-is-gone"; first="" ;;
    "session abandon") flags="--help --config --json --profile --host --reason --owner-is-gone"; first="" ;;
    "session export") flags="--help --config --json --profile --host --dry-run"; first="" ;;
    "session import") flags="--help --config --json --profile --host --workspace"; first="" ;;
    "session bind") flags="--help --config --json --profile --host --workspace --replace"; first="" ;;
    "session prune") flags="--help --config --json --profile --host --older-than --keep-last --dry-run"; first="" ;;
    "session purge") flags="--help --config --json --profile --host"; first="" ;;
    "session verify-release") flags="--help --agentd --target --config --json --manifest --sha256 --extract"; first="" ;;
    "session bench") flags="--help --agentd --target --config --json --suite --seed --rounds --write"; first="" ;;
    mcp) flags="--help --agentd --target --config --json --profile"; first="" ;;
    nodes) flags="--help --agentd --target --config --json"; first="serve status restart stop pair list show revoke remove rename rotate tag import exec jobs read write ls put get logs doctor" ;;
    "nodes serve") flags="--help --agentd --target --config --json --brain --host --port --address --tls --no-tls --require"; first="" ;;
    "nodes status") flags="--help --agentd --target --config --json --brain"; first="" ;;
    "nodes restart") flags="--help --agentd --target --config --json --brain"; first="" ;;
    "nodes stop") flags="--help --agentd --target --config --json --brain"; first="" ;;
    "nodes pair") flags="--help --agentd --target --config --json --brain --replace --address --ttl --token --sealed --tag"; first="" ;;
    "nodes list") flags="--help --agentd --target --config --json --brain --tag"; first="" ;;
    "nodes show") flags="--help --agentd --target --config --json --brain"; first="" ;;
    "nodes revoke") flags="--help --agentd --target --config --json --brain"; first="" ;;
    "nodes remove") flags="--help --agentd --target --config --json --brain"; first="" ;;
    "nodes rename") flags="--help --agentd --target --config --json --brain"; first="" ;;
    "nodes rotate") flags="--help --agentd --target --config --json --brain"; first="" ;;
    "nodes tag") flags="--help --agentd --target --config --json --brain"; first="" ;;
    "nodes import") flags="--help --agentd --target --config --json --brain --tokens --settings"; first="" ;;
    "nodes exec") flags="--help --agentd --target --config --json --brain --tag --limit --shell --cwd --env --timeout --stdin --key --queue-until"; first="" ;;
    "nodes jobs") flags="--help --agentd --target --config --json --brain --shell --cwd --env --timeout --stderr"; first="list start tail wait kill forget" ;;
    "nodes read") flags="--help --agentd --target --config --json --brain --offset --length"; first="" ;;
    "nodes write") flags="--help --agentd --target --config --json --brain --create --append --if-match --mode --parents"; first="" ;;
    "nodes ls") flags="--help --agentd --target --config --json --brain"; first="" ;;
    "nodes put") flags="--help --agentd --target --config --json --brain --delete --dry-run --exclude --manifest"; first="" ;;
    "nodes get") flags="--help --agentd --target --config --json --brain --delete --dry-run --exclude --manifest"; first="" ;;
    "nodes logs") flags="--help --agentd --target --config --json --brain --node --key -n --verify"; first="" ;;
    "nodes doctor") flags="--help --agentd --target --config --json --brain"; first="" ;;
    project) flags="--help --agentd --target --config --json --path"; first="add ls rm" ;;
    footprint) flags="--help --agentd --target --config --json --all"; first="" ;;
    reclaim) flags="--help --agentd --target --config --json --force"; first="task" ;;
    completion) flags="--help --agentd --target --config --json"; first="bash zsh fish" ;;
    version) flags="--help --agentd --target --config --json"; first="" ;;
    *) return ;;
  esac
  if [[ "$cur" == -* ]]; then
    COMPREPLY=($(compgen -W "$flags" -- "$cur"))
  elif [[ "$first" == task && $position -eq 0 ]]; then
    COMPREPLY=($(compgen -W "$("${COMP_WORDS[0]}" "${globals[@]}" _ids 2>/dev/null)" -- "$cur"))
  elif [[ -n "$first" && "$first" != task && $position -eq 0 ]]; then
    COMPREPLY=($(compgen -W "$first" -- "$cur"))
  else
    COMPREPLY=($(compgen -f -- "$cur"))
  fi
}
complete -o filenames -F _handoff handoff
