use clap::Parser;
use expect_test::{Expect, expect};

use super::*;

#[derive(Debug, Parser)]
struct Line {
    #[command(flatten)]
    options: Options,
}

fn check(arguments: &str, expected: &Expect) {
    let line = Line::try_parse_from(std::iter::once("hub").chain(arguments.split_whitespace()));
    let text = match line {
        Ok(Line { options }) => format!("{options:#?}\n"),
        Err(error) => error.to_string().lines().next().unwrap_or_default().to_owned(),
    };
    expected.assert_eq(&text);
}

#[test]
fn the_defaults_of_the_command_line_are_those_of_new() {
    let Line { options } = Line::try_parse_from(["hub", "--data-dir", "/d"]).unwrap();
    assert_eq!(options, Options::new("/d", LISTEN));
    check(
        "--data-dir /d",
        &expect![[r#"
            Options {
                data_dir: "/d",
                listen: 0.0.0.0:8443,
                public_url: [],
                public_ca: None,
                health_listen: 127.0.0.1:8444,
                stale_after: 120s,
                settle: 10s,
                unassign_limit: 20,
            }
        "#]],
    );
}

#[test]
fn public_urls_are_given_at_once_or_one_by_one_and_end_without_a_slash() {
    check(
        "--data-dir /d --public-url https://hub.example.com/tideline/,https://hub --public-url https://[::1]:1 --public-ca ca.pem \
         --settle 0 --stale-after 5m",
        &expect![[r#"
            Options {
                data_dir: "/d",
                listen: 0.0.0.0:8443,
                public_url: [
                    HubUrl(
                        "https://hub.example.com/tideline",
                    ),
                    HubUrl(
                        "https://hub",
                    ),
                    HubUrl(
                        "https://[::1]:1",
                    ),
                ],
                public_ca: Some(
                    File(
                        "ca.pem",
                    ),
                ),
                health_listen: 127.0.0.1:8444,
                stale_after: 300s,
                settle: 0ns,
                unassign_limit: 20,
            }
        "#]],
    );
}

#[test]
fn what_cannot_be_meant_is_refused() {
    check("", &expect!["error: the following required arguments were not provided:"]);
    check(
        "--data-dir /d --public-url http://hub",
        &expect![
            "error: invalid value 'http://hub' for '--public-url <URL,…>': it must be https://HOST, https://HOST:PORT or https://HOST/PATH, of at most 2048 bytes"
        ],
    );
    check(
        "--data-dir /d --public-url hub:8443",
        &expect![
            "error: invalid value 'hub:8443' for '--public-url <URL,…>': it must be https://HOST, https://HOST:PORT or https://HOST/PATH, of at most 2048 bytes"
        ],
    );
    check(
        "--data-dir /d --stale-after 0",
        &expect!["error: invalid value '0' for '--stale-after <TIME>': it must be more than zero"],
    );
    check(
        "--data-dir /d --stale-after 1w",
        &expect![
            "error: invalid value '1w' for '--stale-after <TIME>': it must be a whole number of s, m, h or d, as 90s, 5m, 24h or 7d"
        ],
    );
    check(
        "--data-dir /d --stale-after 99999999999999999d",
        &expect![
            "error: invalid value '99999999999999999d' for '--stale-after <TIME>': it must be a whole number of s, m, h or d, as 90s, 5m, 24h or 7d"
        ],
    );
    check(
        "--data-dir /d --listen 8443",
        &expect!["error: invalid value '8443' for '--listen <ADDRESS>': invalid socket address syntax"],
    );
}
