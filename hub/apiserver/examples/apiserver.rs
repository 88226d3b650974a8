//! Serves one space as a cluster of its own, in memory, for trying it with kubectl:
//!
//! ```text
//! cargo run -p tideline-apiserver --example apiserver -- 127.0.0.1:8001 &
//! kubectl --server http://127.0.0.1:8001 api-resources
//! ```
//!
//! Plain HTTP and no authentication: whoever reaches the port may do everything.

use std::sync::Arc;

use tideline_apiserver::{ApiServer, Config, Credentials, Identity, SpaceConfig, Unauthenticated};
use tideline_store::SqliteStore;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:8001".to_owned());
    let server = ApiServer::new(SqliteStore::in_memory()?, Config::default()).await?;
    server.create_space("main", SpaceConfig::default()).await?;
    let everybody = |_: Credentials<'_>| Ok::<_, Unauthenticated>(Identity::system());
    let listener = tokio::net::TcpListener::bind(&address).await?;
    println!("kubectl --server http://{}", listener.local_addr()?);
    axum::serve(listener, server.router_at_root("main", Arc::new(everybody))).await?;
    Ok(())
}
