use std::net::Ipv4Addr;
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::time::timeout;

use super::*;

fn refused(address: SocketAddr) -> String {
    crate::exit::chain(&bind(address, "agents", "--listen").unwrap_err())
}

#[tokio::test]
async fn a_port_that_cannot_be_taken_is_said_with_the_option_that_names_it() {
    let holder = bind((Ipv4Addr::LOCALHOST, 0).into(), "agents", "--listen").unwrap();
    let held = holder.local_addr().unwrap();
    let said = refused(held);
    let expected =
        format!("cannot listen on {held} for agents; choose another address with --listen, or stop what holds it: ");
    assert!(said.starts_with(&expected), "{said}");

    // Reserved for documentation (RFC 5737): no machine has it.
    let elsewhere = refused("192.0.2.1:80".parse().unwrap());
    assert!(elsewhere.contains("; choose an address of this machine with --listen: "), "{elsewhere}");
}

/// More than the standard library lets wait.
#[tokio::test]
async fn a_crowd_is_kept_until_it_is_accepted() {
    let listener = bind((Ipv4Addr::LOCALHOST, 0).into(), "agents", "--listen").unwrap();
    let address = listener.local_addr().unwrap();
    let crowd = async {
        let mut crowd = Vec::new();
        for _ in 0..300 {
            crowd.push(TcpStream::connect(address).await.unwrap());
        }
        crowd
    };
    let crowd = timeout(Duration::from_secs(30), crowd).await.expect("nobody is left to try again");
    assert_eq!(crowd.len(), 300);
}
