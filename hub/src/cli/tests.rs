use clap::CommandFactory;
use expect_test::{Expect, expect};

use super::*;

fn check(arguments: &str, expected: &Expect) {
    let text = match Cli::try_parse_from(arguments.split_whitespace()) {
        Ok(cli) => format!("{:#?}\n", cli.command),
        Err(error) => format!("{}: {}\n", error.exit_code(), error.to_string().lines().next().unwrap_or_default()),
    };
    expected.assert_eq(&text);
}

#[test]
fn every_command_is_well_formed_and_shows_an_example() {
    fn examples(command: &clap::Command) {
        let after = command.get_after_help().map(ToString::to_string).unwrap_or_default();
        assert!(after.starts_with("Example") || command.get_name() == "help", "{}", command.get_name());
        command.get_subcommands().for_each(examples);
    }
    Cli::command().debug_assert();
    examples(&Cli::command());
}

#[test]
fn every_flag_is_an_environment_variable() {
    fn flags(command: &clap::Command) {
        for flag in command.get_opts() {
            let variable = flag.get_env().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
            assert!(variable.starts_with("TIDELINE_"), "{} --{}", command.get_name(), flag.get_id());
        }
        command.get_subcommands().for_each(flags);
    }
    flags(&Cli::command());
}

#[test]
fn labels_are_pairs() {
    check(
        "tideline-hub token create store --labels region=eu,tier=shop,empty= --expires 7d -o json",
        &expect![[r#"
        Token(
            Create {
                name: "store",
                labels: Labels(
                    {
                        "empty": "",
                        "region": "eu",
                        "tier": "shop",
                    },
                ),
                expires: 604800s,
                hub: Hub {
                    kubeconfig: None,
                },
                output: Json,
            },
        )
    "#]],
    );
    check(
        "tideline-hub token create store --labels region",
        &expect![[r#"
        2: error: invalid value 'region' for '--labels <K=V,…>': "region" must be KEY=VALUE, as region=eu,tier=shop
    "#]],
    );
    check(
        "tideline-hub token create store --labels a=1,a=2",
        &expect![[r#"
        2: error: invalid value 'a=1,a=2' for '--labels <K=V,…>': the label "a" is given twice
    "#]],
    );
}

#[test]
fn wrong_usage_exits_with_2() {
    check(
        "tideline-hub token create",
        &expect![[r"
        2: error: the following required arguments were not provided:
    "]],
    );
    check(
        "tideline-hub kubeconfig",
        &expect![[r"
        2: error: the following required arguments were not provided:
    "]],
    );
    check(
        "tideline-hub status Not_A_Space",
        &expect![[r#"
        2: error: invalid value 'Not_A_Space' for '[SPACE]': "Not_A_Space" is not a space name: it must be 1 to 63 of a-z, 0-9 and '-', beginning and ending with a letter or digit
    "#]],
    );
    check(
        "tideline-hub token create store --expires soon",
        &expect![[r"
        2: error: invalid value 'soon' for '--expires <TIME>': it must be a whole number of s, m, h or d, as 90s, 5m, 24h or 7d
    "]],
    );
    check(
        "tideline-hub balance",
        &expect![[r"
        2: error: unrecognized subcommand 'balance'
    "]],
    );
}
