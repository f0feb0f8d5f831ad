#compdef handoff
_handoff_tasks() {
  local -a ids
  ids=(${(f)"$(handoff _ids 2>/dev/null)"})
  compadd -a ids
}
_handoff() {
  local -a commands
  commands=(
    'init:write a first configuration'
    'agentd:start the daemon that runs executors'
    'doctor:check what this machine has and what is missing'
    'demo:see one task from dispatch to acceptance, in a scratch folder'
    'dispatch:hand a plan to an executor'
    'wait:wait until you are needed'
    'reply:approve, deny or answer'
    'continue:give further instructions after a turn'
    'done:accept the work'
    'stop:end a task without accepting it'
    'interrupt:end the running turn, keep the task'
    'resume:redeliver answers, or settle a lost turn'
    'tasks:list tasks'
    'show:all about one task, ticket or plan'
    'attach:watch an executor work'
    'diff:what a task changed'
    'fetch:a file from a task's worktree'
    'run:run a command in a task's worktree'
    'status:the daemon and what it is doing'
    'project:register, list or forget repositories'
    'footprint:processes that tasks hold'
    'reclaim:worktrees that can go'
    'completion:completion for bash, zsh or fish'
    'version:version, Python and platform'
  )
  if (( CURRENT == 2 )); then
    _describe command commands
    return
  fi
  local command=$words[2]
  shift words
  (( CURRENT-- ))
  case $command in
    init) _arguments '*--help[show this help message and exit]' '*--agentd[another agentd, by URL]:value:_files' '*--target[another agentd, by name]:value:_files' '*--config[configuration file]:value:_files' '*--json[JSON, also on a terminal]' '*--executor[default executor; nothing is asked]:value:_files' '*:file:_files' ;;
    agentd) _arguments '*--help[show this help message and exit]' '*--agentd[another agentd, by URL]:value:_files' '*--target[another agentd, by name]:value:_files' '*--config[configuration file]:value:_files' '*--json[JSON, also on a terminal]' '*--executor[executor of a task that names none]:value:_files' '*--listen[loopback listener, or off]:value:_files' '*--detach[start it in the background]' '*:file:_files' ;;
    doctor) _arguments '*--help[show this help message and exit]' '*--agentd[another agentd, by URL]:value:_files' '*--target[another agentd, by name]:value:_files' '*--config[configuration file]:value:_files' '*--json[JSON, also on a terminal]' '*:file:_files' ;;
    demo) _arguments '*--help[show this help message and exit]' '*--agentd[another agentd, by URL]:value:_files' '*--target[another agentd, by name]:value:_files' '*--config[configuration file]:value:_files' '*--json[JSON, also on a terminal]' '*--yes[approve by itself, ask nothing]' '*--executor[a real one instead]:value:_files' '*--keep[keep the scratch folder]' '*:file:_files' ;;
    dispatch) _arguments '*--help[show this help message and exit]' '*--agentd[another agentd, by URL]:value:_files' '*--target[another agentd, by name]:value:_files' '*--config[configuration file]:value:_files' '*--json[JSON, also on a terminal]' '*--prompt[instruction; - reads standard input]:value:_files' '*--name[name to show for the task]:value:_files' '*--project[a registered project]:value:_files' '*--executor[which executor]:value:_files' '*--model[which model it uses]:value:_files' '*--new-worktree[a managed worktree (default)]' '*--worktree[a worktree of yours]:value:_files' '*--in-place[the folder you stand in]' '*--branch[an existing branch]:value:_files' '*--new-branch[name of the new branch]:value:_files' '*--base[start there, not at your HEAD]:value:_files' '*--allow-dirty[although there are changes]' '*--no-sync-check[remote\: dont compare HEADs]' '*--verify[run after each turn; repeatable]:value:_files' '*--no-setup[skip the configured set-up command]' '*--detach[dont wait for the executors start]' '*--no-terminal[open no terminal window]' '*:file:_files' ;;
    wait) _arguments '*--help[show this help message and exit]' '*--agentd[another agentd, by URL]:value:_files' '*--target[another agentd, by name]:value:_files' '*--config[configuration file]:value:_files' '*--json[JSON, also on a terminal]' '*--follow[print every event that needs you, until the task is over]' '*--until-done[print every such event until the turn rests (completed, turn_failed, failed, archived); exit 0 if the work is done, 1 if it failed]' '*--timeout[exit 124 after so long (with --follow\: after so long without any event)]:value:_files' '*--notify[show a desktop notification too]' '*--no-sync[accepted for compatibility; does nothing]' '1:task:_handoff_tasks' '*:file:_files' ;;
    reply) _arguments '*--help[show this help message and exit]' '*--agentd[another agentd, by URL]:value:_files' '*--target[another agentd, by name]:value:_files' '*--config[configuration file]:value:_files' '*--json[JSON, also on a terminal]' '*--ticket[which ticket; not needed if one is open]:value:_files' '*--approve[allow it, once]' '*--deny[refuse it]' '*--answer[answer; once for each question]:value:_files' '*--reason[with --deny\: what the executor is told]:value:_files' '1:task:_handoff_tasks' '*:file:_files' ;;
    continue) _arguments '*--help[show this help message and exit]' '*--agentd[another agentd, by URL]:value:_files' '*--target[another agentd, by name]:value:_files' '*--config[configuration file]:value:_files' '*--json[JSON, also on a terminal]' '1:task:_handoff_tasks' '*:file:_files' ;;
    done) _arguments '*--help[show this help message and exit]' '*--agentd[another agentd, by URL]:value:_files' '*--target[another agentd, by name]:value:_files' '*--config[configuration file]:value:_files' '*--json[JSON, also on a terminal]' '*--note[what became of it (4096 bytes)]:value:_files' '1:task:_handoff_tasks' '*:file:_files' ;;
    stop) _arguments '*--help[show this help message and exit]' '*--agentd[another agentd, by URL]:value:_files' '*--target[another agentd, by name]:value:_files' '*--config[configuration file]:value:_files' '*--json[JSON, also on a terminal]' '1:task:_handoff_tasks' '*:file:_files' ;;
    interrupt) _arguments '*--help[show this help message and exit]' '*--agentd[another agentd, by URL]:value:_files' '*--target[another agentd, by name]:value:_files' '*--config[configuration file]:value:_files' '*--json[JSON, also on a terminal]' '1:task:_handoff_tasks' '*:file:_files' ;;
    resume) _arguments '*--help[show this help message and exit]' '*--agentd[another agentd, by URL]:value:_files' '*--target[another agentd, by name]:value:_files' '*--config[configuration file]:value:_files' '*--json[JSON, also on a terminal]' '*--force[end the turn here\: the task waits for review]' '1:task:_handoff_tasks' '*:file:_files' ;;
    tasks) _arguments '*--help[show this help message and exit]' '*--agentd[another agentd, by URL]:value:_files' '*--target[another agentd, by name]:value:_files' '*--config[configuration file]:value:_files' '*--json[JSON, also on a terminal]' '*--state[only in that state; repeatable]:value:(pending running waiting_answer waiting_review completed failed)' '*--project[only of that project]:value:_files' '*--limit[at most so many]:value:_files' '*:file:_files' ;;
    show) _arguments '*--help[show this help message and exit]' '*--agentd[another agentd, by URL]:value:_files' '*--target[another agentd, by name]:value:_files' '*--config[configuration file]:value:_files' '*--json[JSON, also on a terminal]' '*--ticket[one ticket, with every byte of its text]:value:_files' '*--plan[the plan as it was handed over]' '*--all[with every event]' '1:task:_handoff_tasks' '*:file:_files' ;;
    attach) _arguments '*--help[show this help message and exit]' '*--agentd[another agentd, by URL]:value:_files' '*--target[another agentd, by name]:value:_files' '*--config[configuration file]:value:_files' '*--json[JSON, also on a terminal]' '*--all[from the very beginning]' '*--no-follow[stop at what is there now]' '1:task:_handoff_tasks' '*:file:_files' ;;
    diff) _arguments '*--help[show this help message and exit]' '*--agentd[another agentd, by URL]:value:_files' '*--target[another agentd, by name]:value:_files' '*--config[configuration file]:value:_files' '*--json[JSON, also on a terminal]' '*--stat[only how much in which file]' '*--name-only[only the names]' '*--base[compare with that instead]:value:_files' '*--uncommitted[what is not committed yet]' '1:task:_handoff_tasks' '*:file:_files' ;;
    fetch) _arguments '*--help[show this help message and exit]' '*--agentd[another agentd, by URL]:value:_files' '*--target[another agentd, by name]:value:_files' '*--config[configuration file]:value:_files' '*--json[JSON, also on a terminal]' '1:task:_handoff_tasks' '*:file:_files' ;;
    run) _arguments '*--help[show this help message and exit]' '*--agentd[another agentd, by URL]:value:_files' '*--target[another agentd, by name]:value:_files' '*--config[configuration file]:value:_files' '*--json[JSON, also on a terminal]' '*--timeout[time limit (default 10m)]:value:_files' '1:task:_handoff_tasks' '*:file:_files' ;;
    status) _arguments '*--help[show this help message and exit]' '*--agentd[another agentd, by URL]:value:_files' '*--target[another agentd, by name]:value:_files' '*--config[configuration file]:value:_files' '*--json[JSON, also on a terminal]' '*:file:_files' ;;
    project) _arguments '*--help[show this help message and exit]' '*--agentd[another agentd, by URL]:value:_files' '*--target[another agentd, by name]:value:_files' '*--config[configuration file]:value:_files' '*--json[JSON, also on a terminal]' '*--path[add\: this folder, not the current]:value:_files' '1:what:(add ls rm)' '*:file:_files' ;;
    footprint) _arguments '*--help[show this help message and exit]' '*--agentd[another agentd, by URL]:value:_files' '*--target[another agentd, by name]:value:_files' '*--config[configuration file]:value:_files' '*--json[JSON, also on a terminal]' '*--all[also tasks without processes]' '*:file:_files' ;;
    reclaim) _arguments '*--help[show this help message and exit]' '*--agentd[another agentd, by URL]:value:_files' '*--target[another agentd, by name]:value:_files' '*--config[configuration file]:value:_files' '*--json[JSON, also on a terminal]' '*--force[discard uncommitted changes; they are listed]' '1:task:_handoff_tasks' '*:file:_files' ;;
    completion) _arguments '*--help[show this help message and exit]' '*--agentd[another agentd, by URL]:value:_files' '*--target[another agentd, by name]:value:_files' '*--config[configuration file]:value:_files' '*--json[JSON, also on a terminal]' '1:what:(bash zsh fish)' '*:file:_files' ;;
    version) _arguments '*--help[show this help message and exit]' '*--agentd[another agentd, by URL]:value:_files' '*--target[another agentd, by name]:value:_files' '*--config[configuration file]:value:_files' '*--json[JSON, also on a terminal]' '*:file:_files' ;;
  esac
}
if [[ $zsh_eval_context[-1] == loadautofunc ]]; then _handoff "$@"; else compdef _handoff handoff; fi
