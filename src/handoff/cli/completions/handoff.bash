# bash completion for handoff
_handoff_words() {
  local words="$1" line
  case "$1" in
    task) words="$("${COMP_WORDS[0]}" "${globals[@]}" _ids 2>/dev/null)" ;;
    node) words="$("${COMP_WORDS[0]}" _nodes "${brain[@]}" 2>/dev/null)" ;;
  esac
  if [[ "$1" == node ]]; then # a name may hold blanks
    while IFS= read -r line; do
      if [[ -n "$line" && "$line" == "$cur"* ]]; then COMPREPLY+=("$line"); fi
    done <<<"$words"
  else
    COMPREPLY=($(compgen -W "$words" -- "$cur"))
  fi
}
_handoff() {
  local cur prev command="" at first="" second="" many="" kind="" flags="" rest="" globals=() brain=()
  cur="${COMP_WORDS[COMP_CWORD]}"
  prev="${COMP_WORDS[COMP_CWORD-1]}"
  COMPREPLY=()
  local position=0
  for ((at = 1; at < COMP_CWORD; at++)); do
    case "${COMP_WORDS[at]}" in
      --) rest=1; break ;;
      --brain) brain=(--brain "${COMP_WORDS[at+1]}"); ((at++)) ;;
      --agentd|--target|--config) globals+=("${COMP_WORDS[at]}" "${COMP_WORDS[at+1]}"); ((at++)) ;;
      --abandon|--address|--adopt|--agentd|--answer|--attempt-id|--attribution|--base|--brain|--branch|--budget|--code|--config|--constraint|--cursor|--cwd|--digest|--env|--exclude|--executor|--extract|--first-step|--from|--host|--idle|--if-match|--in|--keep-last|--key|--length|--limit|--listen|--locale|--manifest|--mode|--model|--name|--new-branch|--node|--note|--offset|--older-than|--page|--parent|--path|--port|--profile|--project|--prompt|--provider|--queue-until|--reason|--request-id|--require|--rounds|--seed|--session|--settings|--sha256|--shell|--source|--state|--suite|--supersedes|--surface|--tag|--target|--ticket|--timeout|--tokens|--ttl|--verify|--workspace|--worktree|--write|-n) ((at++)) ;;
      -*) ;;
      *)
        if [[ -z "$command" ]]; then command="${COMP_WORDS[at]}"
        elif [[ "$command" =~ ^(nodes|session)$ ]]; then command="$command ${COMP_WORDS[at]}"
        else ((position++)); fi ;;
    esac
  done
  if [[ -n "$rest" ]]; then
    COMPREPLY=($(compgen -c -f -- "$cur"))
    return
  fi
  case "$prev" in
    --state) _handoff_words 'pending running waiting_answer waiting_review completed failed'; return ;;
    --host) _handoff_words 'hermes claude codex opencode other'; return ;;
    --surface) _handoff_words 'cli desktop any'; return ;;
    --locale) _handoff_words 'en it'; return ;;
    --suite) _handoff_words 'A B C D'; return ;;
    --require) _handoff_words 'any e2e e2e2'; return ;;
    --node) _handoff_words 'node'; return ;;
    --config|--worktree|--path) COMPREPLY=($(compgen -f -- "$cur")); return ;;
    --abandon|--address|--adopt|--agentd|--answer|--attempt-id|--attribution|--base|--brain|--branch|--budget|--code|--config|--constraint|--cursor|--cwd|--digest|--env|--exclude|--executor|--extract|--first-step|--from|--host|--idle|--if-match|--in|--keep-last|--key|--length|--limit|--listen|--locale|--manifest|--mode|--model|--name|--new-branch|--node|--note|--offset|--older-than|--page|--parent|--path|--port|--profile|--project|--prompt|--provider|--queue-until|--reason|--request-id|--require|--rounds|--seed|--session|--settings|--sha256|--shell|--source|--state|--suite|--supersedes|--surface|--tag|--target|--ticket|--timeout|--tokens|--ttl|--verify|--workspace|--worktree|--write|-n) return ;;
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
    init) flags="--help --agentd --target --config --json --executor"; first=""; second=""; many="" ;;
    agentd) flags="--help --agentd --target --config --json --executor --listen --detach"; first=""; second=""; many="" ;;
    doctor) flags="--help --agentd --target --config --json"; first=""; second=""; many="" ;;
    demo) flags="--help --agentd --target --config --json --yes --executor --keep"; first=""; second=""; many="" ;;
    dispatch) flags="--help --agentd --target --config --json --prompt --from --name --project --executor --model --new-worktree --worktree --in-place --branch --new-branch --base --allow-dirty --no-sync-check --verify --no-setup --profile --detach --no-terminal"; first=""; second=""; many="" ;;
    wait) flags="--help --agentd --target --config --json --follow --until-done --timeout --notify --no-sync"; first="task"; second=""; many="" ;;
    reply) flags="--help --agentd --target --config --json --ticket --approve --deny --answer --reason"; first="task"; second=""; many="" ;;
    continue) flags="--help --agentd --target --config --json"; first="task"; second=""; many="" ;;
    done) flags="--help --agentd --target --config --json --note --record --profile --workspace"; first="task"; second=""; many="" ;;
    stop) flags="--help --agentd --target --config --json"; first="task"; second=""; many="" ;;
    interrupt) flags="--help --agentd --target --config --json"; first="task"; second=""; many="" ;;
    resume) flags="--help --agentd --target --config --json --force"; first="task"; second=""; many="" ;;
    tasks) flags="--help --agentd --target --config --json --state --project --limit"; first=""; second=""; many="" ;;
    show) flags="--help --agentd --target --config --json --ticket --plan --all"; first="task"; second=""; many="" ;;
    attach) flags="--help --agentd --target --config --json --all --no-follow"; first="task"; second=""; many="" ;;
    diff) flags="--help --agentd --target --config --json --stat --name-only --base --uncommitted"; first="task"; second=""; many="" ;;
    fetch) flags="--help --agentd --target --config --json"; first="task"; second=""; many="" ;;
    run) flags="--help --agentd --target --config --json --timeout"; first="task"; second=""; many="" ;;
    status) flags="--help --agentd --target --config --json"; first=""; second=""; many="" ;;
    session) flags="--help --agentd --target --config --json"; first="create evidence sweep list search show read log validate verify prepare open status ack confirm recover abandon export import bind prune purge verify-release bench"; second=""; many="" ;;
    "session create") flags="--help --config --json --profile --host --session --workspace --request-id --name --parent --attribution --dry-run --strict --allow-stale"; first=""; second=""; many="" ;;
    "session evidence") flags="--help --config --json --profile --host --session --workspace --path"; first=""; second=""; many="" ;;
    "session sweep") flags="--help --config --json --profile --host --idle --dry-run"; first=""; second=""; many="" ;;
    "session list") flags="--help --config --json --profile --host --source --workspace --limit --cursor"; first=""; second=""; many="" ;;
    "session search") flags="--help --config --json --profile --host --workspace --limit --cursor"; first=""; second=""; many="" ;;
    "session show") flags="--help --config --json --profile --host --workspace --budget --state"; first=""; second=""; many="" ;;
    "session read") flags="--help --config --json --profile --host --session --workspace --attempt-id --page"; first=""; second=""; many="" ;;
    "session log") flags="--help --config --json --profile --host"; first=""; second=""; many="" ;;
    "session validate") flags="--help --config --json --profile --host"; first=""; second=""; many="" ;;
    "session verify") flags="--help --config --json --profile --host"; first=""; second=""; many="" ;;
    "session prepare") flags="--help --config --json --profile --host --session --workspace --attempt-id --model --provider --surface --locale --allow-parallel --supersedes"; first=""; second=""; many="" ;;
    "session open") flags="--help --config --json --profile --host --workspace --attempt-id --model --provider --yes --show-goal"; first=""; second=""; many="" ;;
    "session status") flags="--help --config --json --profile --host"; first=""; second=""; many="" ;;
    "session ack") flags="--help --config --json --profile --host --session --attempt-id --digest --constraint --code --first-step --workspace"; first=""; second=""; many="" ;;
    "session confirm") flags="--help --config --json --profile --host"; first=""; second=""; many="" ;;
    "session recover") flags="--help --config --json --profile --host --adopt --abandon --show-prompt --owner-is-gone"; first=""; second=""; many="" ;;
    "session abandon") flags="--help --config --json --profile --host --reason --owner-is-gone"; first=""; second=""; many="" ;;
    "session export") flags="--help --config --json --profile --host --dry-run"; first=""; second=""; many="" ;;
    "session import") flags="--help --config --json --profile --host --workspace"; first=""; second=""; many="" ;;
    "session bind") flags="--help --config --json --profile --host --workspace --replace"; first=""; second=""; many="" ;;
    "session prune") flags="--help --config --json --profile --host --older-than --keep-last --dry-run"; first=""; second=""; many="" ;;
    "session purge") flags="--help --config --json --profile --host"; first=""; second=""; many="" ;;
    "session verify-release") flags="--help --agentd --target --config --json --manifest --sha256 --extract"; first=""; second=""; many="" ;;
    "session bench") flags="--help --agentd --target --config --json --suite --seed --rounds --write"; first=""; second=""; many="" ;;
    mcp) flags="--help --agentd --target --config --json --profile"; first=""; second=""; many="" ;;
    nodes) flags="--help --agentd --target --config --json"; first="serve status restart stop pair list show revoke remove rename rotate tag import exec jobs shells read write ls put get logs doctor"; second=""; many="" ;;
    "nodes serve") flags="--help --agentd --target --config --json --brain --host --port --address --tls --no-tls --require"; first=""; second=""; many="" ;;
    "nodes status") flags="--help --agentd --target --config --json --brain"; first=""; second=""; many="" ;;
    "nodes restart") flags="--help --agentd --target --config --json --brain --host --port --address --tls --no-tls --require"; first=""; second=""; many="" ;;
    "nodes stop") flags="--help --agentd --target --config --json --brain"; first=""; second=""; many="" ;;
    "nodes pair") flags="--help --agentd --target --config --json --brain --replace --address --ttl --token --sealed --tag"; first=""; second=""; many="" ;;
    "nodes list") flags="--help --agentd --target --config --json --brain --tag"; first=""; second=""; many="" ;;
    "nodes show") flags="--help --agentd --target --config --json --brain"; first="node"; second=""; many="" ;;
    "nodes revoke") flags="--help --agentd --target --config --json --brain"; first="node"; second=""; many="" ;;
    "nodes remove") flags="--help --agentd --target --config --json --brain"; first="node"; second=""; many="" ;;
    "nodes rename") flags="--help --agentd --target --config --json --brain"; first="node"; second=""; many="" ;;
    "nodes rotate") flags="--help --agentd --target --config --json --brain"; first="node"; second=""; many="" ;;
    "nodes tag") flags="--help --agentd --target --config --json --brain"; first="node"; second=""; many="" ;;
    "nodes import") flags="--help --agentd --target --config --json --brain --tokens --settings"; first=""; second=""; many="" ;;
    "nodes exec") flags="--help --agentd --target --config --json --brain --tag --limit --shell --cwd --env --timeout --in --stdin --key --queue-until"; first="node"; second="node"; many="node" ;;
    "nodes jobs") flags="--help --agentd --target --config --json --brain --shell --cwd --env --timeout --stderr"; first="node"; second="list start tail wait kill forget"; many="" ;;
    "nodes shells") flags="--help --agentd --target --config --json --brain --cwd --env"; first="node"; second="list open close"; many="" ;;
    "nodes read") flags="--help --agentd --target --config --json --brain --offset --length"; first="node"; second=""; many="" ;;
    "nodes write") flags="--help --agentd --target --config --json --brain --create --append --if-match --mode --parents"; first="node"; second=""; many="" ;;
    "nodes ls") flags="--help --agentd --target --config --json --brain"; first="node"; second=""; many="" ;;
    "nodes put") flags="--help --agentd --target --config --json --brain --delete --dry-run --exclude --manifest"; first="node"; second=""; many="" ;;
    "nodes get") flags="--help --agentd --target --config --json --brain --delete --dry-run --exclude --manifest"; first="node"; second=""; many="" ;;
    "nodes logs") flags="--help --agentd --target --config --json --brain --node --key -n --verify"; first=""; second=""; many="" ;;
    "nodes doctor") flags="--help --agentd --target --config --json --brain"; first=""; second=""; many="" ;;
    project) flags="--help --agentd --target --config --json --path"; first="add ls rm"; second=""; many="" ;;
    footprint) flags="--help --agentd --target --config --json --all"; first=""; second=""; many="" ;;
    reclaim) flags="--help --agentd --target --config --json --force"; first="task"; second=""; many="" ;;
    completion) flags="--help --agentd --target --config --json"; first="bash zsh fish"; second=""; many="" ;;
    version) flags="--help --agentd --target --config --json"; first=""; second=""; many="" ;;
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
}
complete -o filenames -F _handoff handoff
