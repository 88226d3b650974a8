//! Variables of the environment that are meant for an option, and are no option's.

use std::collections::BTreeSet;

use clap::Command;
use tracing::warn;

/// How the variables of all options begin.
const PREFIX: &str = "TIDELINE_";

/// Says once of each variable that is ignored: it is misspelt, or of another version.
pub fn say_ignored(command: &Command) {
    let variables = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
    for name in ignored(command, variables) {
        warn!("{name} is ignored: no option has that variable; see --help for those that there are");
    }
}

/// Those of no option of `command` and its subcommands.
fn ignored(command: &Command, variables: impl Iterator<Item = String>) -> BTreeSet<String> {
    let mut ignored: BTreeSet<_> =
        variables.filter(|name| name.starts_with(PREFIX) && !is_of_a_service(name)).collect();
    forget_known(command, &mut ignored);
    ignored
}

fn forget_known(command: &Command, variables: &mut BTreeSet<String>) {
    for variable in command.get_arguments().filter_map(clap::Arg::get_env) {
        variables.remove(&*variable.to_string_lossy());
    }
    for subcommand in command.get_subcommands() {
        forget_known(subcommand, variables);
    }
}

/// Whether Kubernetes may have given it to a Pod, for a Service of its namespace such as `tideline-hub`
/// (<https://kubernetes.io/docs/concepts/services-networking/service/#environment-variables>).
fn is_of_a_service(name: &str) -> bool {
    name.ends_with("_SERVICE_HOST")
        || name.contains("_SERVICE_PORT")
        || name.ends_with("_PORT")
        || name.contains("_PORT_")
}

#[cfg(test)]
mod tests {
    use clap::Arg;

    use super::*;

    #[test]
    fn a_variable_that_is_no_options_is_ignored() {
        let option = |name: &'static str, variable: &'static str| Arg::new(name).long(name).env(variable);
        let command = Command::new("any")
            .arg(option("log", "TIDELINE_LOG"))
            .subcommand(Command::new("run").arg(option("hub-url", "TIDELINE_HUB_URL")));
        let variables = [
            "TIDELINE_LOG",
            "TIDELINE_HUB_URL",
            "TIDELINE_HUBURL",
            "TIDELINE_URL_OF_HUB",
            "PATH",
            "TIDELINE_HUB_SERVICE_HOST",
            "TIDELINE_HUB_SERVICE_PORT_HTTPS",
            "TIDELINE_HUB_PORT",
            "TIDELINE_HUB_PORT_8443_TCP_ADDR",
        ];
        let ignored = ignored(&command, variables.into_iter().map(str::to_owned));
        assert_eq!(ignored.into_iter().collect::<Vec<_>>(), ["TIDELINE_HUBURL", "TIDELINE_URL_OF_HUB"]);
    }
}
