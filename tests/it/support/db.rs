//! A database per test, copied from a migrated template, so that a test costs one `create database` and no migration.

use std::str::FromStr;
use std::sync::OnceLock;
use std::sync::mpsc::{Sender, channel};

use longhaul_store::database::schema;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{AssertSqlSafe, ConnectOptions, Connection, PgConnection, PgPool};
use tokio::sync::OnceCell;

use super::{servers::shared_postgres_url, wait::SOON};

/// Advisory lock for making the template, on a server that several processes share.
const TEMPLATE_LOCK: i64 = 0x6c6f_6e67_6861_756c;

/// A database of the test's own; dropped with it.
#[derive(Debug)]
pub(crate) struct TestDb {
    /// URL of this database, `postgres://…`.
    pub(crate) url: String,
    /// Pool of up to ten connections.
    pub(crate) pool: PgPool,
    /// Unique name of the database.
    pub(crate) name: String,
    shared: bool,
}

impl TestDb {
    pub(crate) async fn create() -> Self {
        let template = template().await;
        Self::create_in(admin_url().await, Some(&template)).await
    }

    /// A migrated database in a dedicated server. Made without a template, because such a server is used once.
    pub(crate) async fn create_on(server_url: &str) -> Self {
        let db = Self::create_in(server_url, None).await;
        let mut connection = db.pool.acquire().await.expect("connect to the test database");
        schema::migrate(&mut connection).await.expect("migrate the test database");
        drop(connection);
        db
    }

    /// The migrated default database of a dedicated server.
    pub(crate) async fn create_default_on(server_url: &str) -> Self {
        let mut connection = connect(server_url).await;
        schema::migrate(&mut connection).await.expect("migrate the database");
        connection.close().await.expect("close the connection");
        Self::existing(server_url).await
    }

    /// A database that is there, on a dedicated server.
    pub(crate) async fn existing(url: &str) -> Self {
        let options = PgConnectOptions::from_str(url).expect("a database url");
        let name = options.get_database().expect("the url names a database").to_owned();
        Self::open(options, name, false).await
    }

    /// An empty database without migrations.
    pub(crate) async fn empty() -> Self {
        let mut db = Self::create_in(admin_url().await, None).await;
        db.shared = true;
        db
    }

    async fn create_in(server_url: &str, template: Option<&str>) -> Self {
        let name = format!("t{}", uuid::Uuid::new_v4().simple());
        let mut admin = connect(server_url).await;
        let from = template.map(|template| format!(" template {template}")).unwrap_or_default();
        execute(&mut admin, format!("create database {name}{from}")).await;
        admin.close().await.expect("close the administrator's connection");
        let options = PgConnectOptions::from_str(server_url).expect("a database url").database(&name);
        Self::open(options, name, template.is_some()).await
    }

    async fn open(options: PgConnectOptions, name: String, shared: bool) -> Self {
        let url = options.to_url_lossy().to_string();
        let pool = PgPoolOptions::new()
            .max_connections(10)
            .acquire_timeout(SOON)
            .connect_with(options)
            .await
            .expect("connect to the test database");
        Self { url, pool, name, shared }
    }
}

impl Drop for TestDb {
    fn drop(&mut self) {
        // A database in a dedicated server is removed with that server.
        if self.shared {
            janitor().send(self.name.clone()).expect("the janitor lives as long as the process");
        }
    }
}

/// Drops databases in the background, because `drop` cannot wait for a server. Those left when the process ends are
/// removed with its private server.
fn janitor() -> Sender<String> {
    static JANITOR: OnceLock<Sender<String>> = OnceLock::new();
    let start = || {
        let (sender, names) = channel::<String>();
        let work = move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            for name in names {
                runtime.block_on(async {
                    let mut admin = connect(shared_postgres_url()).await;
                    execute(&mut admin, format!("drop database if exists {name} with (force)")).await;
                });
            }
        };
        std::thread::Builder::new().name("drop-databases".to_owned()).spawn(work).expect("start the janitor");
        sender
    };
    JANITOR.get_or_init(start).clone()
}

/// Name of the migrated template, made by the first test of the process. On an external server the name follows from
/// the migrations, and the template of an earlier run is used again.
async fn template() -> String {
    static TEMPLATE: OnceCell<String> = OnceCell::const_new();
    TEMPLATE.get_or_init(make_template).await.clone()
}

async fn make_template() -> String {
    let name = format!("longhaul_template_{}", &hex::encode(schema::fingerprint())[..16]);
    let mut admin = connect(admin_url().await).await;
    sqlx::query("select pg_advisory_lock($1)")
        .bind(TEMPLATE_LOCK)
        .execute(&mut admin)
        .await
        .expect("lock the template");
    let exists: bool = sqlx::query_scalar("select exists (select from pg_database where datname = $1)")
        .bind(&name)
        .fetch_one(&mut admin)
        .await
        .expect("look for the template");
    if !exists {
        let partial = format!("{name}_partial");
        execute(&mut admin, format!("drop database if exists {partial} with (force)")).await;
        execute(&mut admin, format!("create database {partial}")).await;
        let options = PgConnectOptions::from_str(admin_url().await).expect("a database url").database(&partial);
        let mut connection = options.connect().await.expect("connect to the template");
        schema::migrate(&mut connection).await.expect("migrate the template");
        connection.close().await.expect("close the template");
        execute(&mut admin, format!("alter database {partial} rename to {name}")).await;
    }
    // Ends the session and with it the lock.
    admin.close().await.expect("close the administrator's connection");
    name
}

async fn admin_url() -> &'static str {
    // Starting a server blocks.
    tokio::task::spawn_blocking(shared_postgres_url).await.expect("start the shared PostgreSQL")
}

async fn connect(url: &str) -> PgConnection {
    PgConnection::connect(url).await.expect("connect to the server")
}

/// Runs a statement without parameters; this module generates every name in it.
async fn execute(connection: &mut PgConnection, sql: String) {
    let done = sqlx::query(AssertSqlSafe(sql.clone())).execute(connection).await;
    done.unwrap_or_else(|error| panic!("{sql}: {error}"));
}
