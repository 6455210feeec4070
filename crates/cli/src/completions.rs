//! `jitney completions`: a script that lets a shell complete commands, flags and their values.

use clap::CommandFactory as _;

use crate::console;
use crate::failure::Failure;
use crate::flags::Cli;
use crate::flags::completions::CompletionsFlags;

/// Prints the script.
pub fn print(flags: &CompletionsFlags) -> Result<u8, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(flags.shell, &mut Cli::command(), "jitney", &mut script);
    console::out(String::from_utf8_lossy(&script).trim_end());
    Ok(0)
}

#[cfg(test)]
mod tests {
    use clap_complete::Shell;

    use super::*;

    #[test]
    fn every_shell_gets_every_command_and_flag() {
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "jitney", &mut script);
            let script = String::from_utf8(script).expect("text");
            for word in ["unregister", "max-latency-ms", "key-file"] {
                assert!(script.contains(word), "{shell}: {word}");
            }
        }
    }
}
