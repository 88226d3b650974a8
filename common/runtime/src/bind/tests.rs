use std::net::Ipv4Addr;

use super::*;

async fn refused(address: SocketAddr) -> String {
    crate::exit::chain(&bind(address, "agents", "--listen").await.unwrap_err())
}

#[tokio::test]
async fn a_port_that_cannot_be_taken_is_said_with_the_option_that_names_it() {
    let holder = bind((Ipv4Addr::LOCALHOST, 0).into(), "agents", "--listen").await.unwrap();
    let held = holder.local_addr().unwrap();
    let said = refused(held).await;
    let expected =
        format!("cannot listen on {held} for agents; choose another address with --listen, or stop what holds it: ");
    assert!(said.starts_with(&expected), "{said}");

    // Reserved for documentation (RFC 5737): no machine has it.
    let elsewhere = refused("192.0.2.1:80".parse().unwrap()).await;
    assert!(elsewhere.contains("; choose an address of this machine with --listen: "), "{elsewhere}");
}
