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

/// Whoever exported one of these once would have said it of every call.
const OF_ONE_CALL: [&str; 2] = ["force", "yes"];

/// What has no value on the command line has one there.
#[test]
fn every_flag_that_is_not_of_one_call_alone_is_an_environment_variable() {
    fn flags(command: &clap::Command) {
        let named = |flag: &&clap::Arg| !flag.is_positional() && !["help", "version"].contains(&flag.get_id().as_str());
        for flag in command.get_arguments().filter(named) {
            let name = format!("{} --{}", command.get_name(), flag.get_id());
            let of_one_call = OF_ONE_CALL.contains(&flag.get_id().as_str());
            assert_eq!(flag.get_env().is_none(), of_one_call, "{name}");
            let Some(variable) = flag.get_env() else { continue };
            assert!(variable.to_string_lossy().starts_with("TIDELINE_"), "{name}");
            if !matches!(flag.get_action(), clap::ArgAction::SetTrue) {
                continue;
            }
            for (said, expected) in [("1", true), ("0", false), ("true", true), ("false", false)] {
                let said = format!("--{}={said}", flag.get_long().expect("every flag has a long name"));
                let reads = clap::Command::new("reads").arg(flag.clone().action(clap::ArgAction::Set));
                let read =
                    reads.try_get_matches_from(["reads", &said]).unwrap_or_else(|error| panic!("{name}: {error}"));
                assert_eq!(read.get_one(flag.get_id().as_str()), Some(&expected), "{name}: {said}");
            }
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
