#compdef hermes-node
_hermes_node() {
  local -a verbs
  verbs=(
    'pair:become a node of the brain that showed a code'
    'run:dial the brain and serve it, in the foreground'
    'status:the link as it is now'
    'stop:end the node; --keep leaves its commands running'
    'validate:check the configuration and the policy'
    'doctor:check everything that a node needs'
    'policy:what may be done to this machine'
    'asks:commands that wait for a person here'
    'approve:allow one command once'
    'deny:refuse one command'
    'lock:end and refuse everything at once, until unlock'
    'unlock:take the lock away'
    'logs:what was asked of this machine'
    'service:text of a systemd or launchd service'
    'completion:completion for bash, zsh or fish'
  )
  if (( CURRENT == 2 )); then
    _describe verb verbs
    return
  fi
  local verb=$words[2]
  shift words
  (( CURRENT-- ))
  case $verb in
    pair) _arguments '*--help[show this help message and exit]' '*--config[]:value:_files' '*--json[]' '*--name[this nodes name, where the code has none]:value:_files' '*--server[older brains\: their address]:value:_files' '*--token-file[older brains\: file with the token]:value:_files' '*--pin[older brains\: certificates SHA-256]:value:_files' '*--plugin[older brains\: it is hermes-node-plugin up to v0.1.2]' '*--allow[readable and writable here]:value:_files' ;;
    run) _arguments '*--help[show this help message and exit]' '*--config[]:value:_files' '*--json[]' '*--take-over[take the place of another machine, or copy, that is connected under this name]' ;;
    status) _arguments '*--help[show this help message and exit]' '*--config[]:value:_files' '*--json[]' ;;
    stop) _arguments '*--help[show this help message and exit]' '*--config[]:value:_files' '*--json[]' '*--keep[leave its commands running]' ;;
    validate) _arguments '*--help[show this help message and exit]' '*--config[]:value:_files' '*--json[]' ;;
    doctor) _arguments '*--help[show this help message and exit]' '*--config[]:value:_files' '*--json[]' ;;
    policy) _arguments '*--help[show this help message and exit]' '*--config[]:value:_files' '*--json[]' ;;
    asks) _arguments '*--help[show this help message and exit]' '*--config[]:value:_files' '*--json[]' ;;
    approve) _arguments '*--help[show this help message and exit]' '*--config[]:value:_files' '*--json[]' ;;
    deny) _arguments '*--help[show this help message and exit]' '*--config[]:value:_files' '*--json[]' ;;
    lock) _arguments '*--help[show this help message and exit]' '*--config[]:value:_files' '*--json[]' ;;
    unlock) _arguments '*--help[show this help message and exit]' '*--config[]:value:_files' '*--json[]' ;;
    logs) _arguments '*--help[show this help message and exit]' '*--config[]:value:_files' '*--json[]' '*-n[]:value:_files' '*--verify[]' ;;
    service) _arguments '*--help[show this help message and exit]' '*--config[]:value:_files' '*--json[]' '1:what:(systemd launchd)' ;;
    completion) _arguments '*--help[show this help message and exit]' '*--config[]:value:_files' '*--json[]' '1:what:(bash zsh fish)' ;;
  esac
}
if [[ $zsh_eval_context[-1] == loadautofunc ]]; then
  _hermes_node "$@"
else
  compdef _hermes_node hermes-node
fi
