//! `jitney completions`.

use clap::Args;
use clap_complete::Shell;

/// `jitney completions`
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct CompletionsFlags {
    /// The shell
    #[arg(value_name = "SHELL")]
    pub shell: Shell,
}

const EXAMPLES: &str = "\
bash, once:     jitney completions bash > ~/.local/share/bash-completion/completions/jitney
                (needs the package bash-completion; or add to ~/.bashrc:
                source <(jitney completions bash))
zsh, once:      jitney completions zsh > ~/.zfunc/_jitney
                (with `fpath+=~/.zfunc` before `compinit` in ~/.zshrc)
fish, once:     jitney completions fish > ~/.config/fish/completions/jitney.fish";
