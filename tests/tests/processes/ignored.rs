//! What an agent is given and makes no use of, it says.

use anyhow::{Result, ensure};
use tideline_tests::require_binaries;

use crate::harness::{SOON, Site};

#[tokio::test]
async fn a_setting_without_effect_is_logged_once_as_ignored() -> Result<()> {
    let binaries = require_binaries!();
    let mut site = Site::start(&binaries).await?;
    site.hub.place_config_maps().await?;
    site.agent.process.terminate()?;
    site.agent.process.wait(SOON).await?;
    site.agent.start.arguments.extend(["--lease", "ours", "--identity-secret", "mine"].map(str::to_owned));
    site.agent.environ(vec![
        ("TIDELINE_HUBURL", "https://hub.example".into()),
        ("HTTPS_PROXY", "http://proxy.invalid:3128".into()),
        ("NO_PROXY", "127.0.0.1".into()),
        ("no_proxy", "other.example".into()),
    ]);
    site.agent.resume()?;
    site.agent.is_ready().await?;
    site.delivers("all-the-same").await?;
    for said in [
        "TIDELINE_HUBURL is ignored: no option has that variable",
        "--lease is ignored: no Lease is held without --leader-elect",
        "--identity-secret is ignored: there is no namespace for the Secret",
        "no_proxy is ignored: NO_PROXY is set, and says something else",
        "HTTPS_PROXY is ignored for https://127.0.0.1",
        "the token in --token-file is ignored: this agent enrolled with it",
    ] {
        site.agent.says(said).await?;
        let times = site.agent.process.log().matches(said).count();
        ensure!(times == 1, "{said:?} is said {times} times");
    }
    Ok(())
}
