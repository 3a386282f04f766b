#include "orchestrator/cli/verbs/completion.hpp"

namespace dynamiccl {

std::string completion_script(const std::string& shell) {
  if (shell == "bash")
    return R"SH(# bash: source <(dynamiccl completion bash)
_dynamiccl() {
  local IFS=$'\n'
  COMPREPLY=($("${COMP_WORDS[0]}" completion --index "$COMP_CWORD" -- "${COMP_WORDS[@]}" 2>/dev/null))
  if [[ ${#COMPREPLY[@]} -eq 1 && ${COMPREPLY[0]} == *[/=] ]]; then
    compopt -o nospace
  fi
}
complete -F _dynamiccl dynamiccl
)SH";
  if (shell == "zsh")
    return R"SH(#compdef dynamiccl
# zsh: source <(dynamiccl completion zsh), or put it into a file _dynamiccl of a folder in $fpath
_dynamiccl() {
  local -a lines plain open
  local line word found=1
  lines=("${(@f)$("${words[1]}" completion --describe --index $((CURRENT - 1)) -- "${words[@]}" 2>/dev/null)}")
  for line in $lines; do
    word=${line%%$'\t'*}
    [[ -n $word ]] || continue
    if [[ $word == *[/=] ]]; then
      open+=("$word")
    elif [[ $line == *$'\t'* ]]; then
      plain+=("${word//:/\\:}:${line#*$'\t'}")
    else
      plain+=("${word//:/\\:}")
    fi
  done
  (( $#plain )) && _describe -t words 'dynamiccl' plain && found=0
  (( $#open )) && compadd -S '' -a open && found=0
  return found  # not 0: zsh goes on with its other completers
}
if [[ $funcstack[1] == _dynamiccl ]]; then
  _dynamiccl "$@"
else
  compdef _dynamiccl dynamiccl
fi
)SH";
  return R"SH(# fish: dynamiccl completion fish | source
function __dynamiccl_words
  set -l words (commandline -opc)
  set -l current (commandline -ct)
  command $words[1] completion --describe --index (count $words) -- $words "$current" 2>/dev/null
end
complete -c dynamiccl -f -a '(__dynamiccl_words)'
)SH";
}

}  // namespace dynamiccl
