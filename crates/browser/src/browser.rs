//! The browsers of a worker, and one of them.

use std::{io, path::Path, sync::Arc};

use longhaul_config::BrowserConfig;
use longhaul_domain::TenantId;
use longhaul_fairness::{FairShare, Share};
use rustix::fs::{Access, access};
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::{
    devtools::DevTools,
    error::BrowserError,
    facts::{Facts, InUse},
    launch::{Launched, Process, VIEW, launch},
    proxy::{Proxy, Reach, Transfer},
};

/// Product of the headless shell. Chromium's other headless mode sends UDP around the proxy, contacts servers of its
/// own and writes what pages store to disk.
const HEADLESS_SHELL: &str = "HeadlessChrome/";
const NOT_STARTED: &str = "the browser did not start";

/// The browsers of a worker. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Browsers {
    config: Arc<BrowserConfig>,
    program: Arc<Path>,
    private_hosts: Arc<[String]>,
    slots: FairShare<TenantId>,
}

/// The right to start one browser. Returned once that browser has ended.
#[derive(Debug)]
pub struct Slot(Share<TenantId>);

/// A running browser with one page. Dropped, it is killed.
#[derive(Debug)]
pub struct Browser {
    pub(crate) config: Arc<BrowserConfig>,
    pub(crate) facts: Arc<Facts>,
    pub(crate) devtools: DevTools,
    /// True once the page was told to go somewhere.
    pub(crate) has_page: bool,
    process: Process,
    _proxy: Proxy,
}

impl Browsers {
    /// The browsers of a worker; `None` if none is configured.
    ///
    /// # Errors
    /// The program cannot be run here; as a message.
    pub fn new(config: &BrowserConfig) -> Result<Option<Self>, String> {
        let Some(program) = &config.program else { return Ok(None) };
        if !cfg!(target_os = "linux") {
            return Err("browser.program is set, but browsers run on Linux only".into());
        }
        let program: Arc<Path> = Path::new(program).into();
        if !program.is_file() || access(&*program, Access::EXEC_OK).is_err() {
            return Err(format!("browser.program, {}, is not a program", program.display()));
        }
        Ok(Some(Self {
            config: Arc::new(config.clone()),
            program,
            private_hosts: config.private_hosts.clone().into(),
            slots: FairShare::new(config.max_browsers as u64),
        }))
    }

    /// Limits of the browsers.
    #[must_use]
    pub fn config(&self) -> &BrowserConfig {
        &self.config
    }

    /// Waits until less than the maximum of browsers run. A tenant with more than its share gives one up: the one that
    /// is without a call for longest.
    ///
    /// # Errors
    /// None is free within the time of a call.
    pub async fn slot(&self, tenant: TenantId) -> Result<Slot, BrowserError> {
        let busy = || {
            let seconds = self.config.call.as_secs();
            BrowserError::Refused(format!("no browser was free within {seconds} s: this worker runs a limited number"))
        };
        let slot = timeout(self.config.call, self.slots.take(tenant, 1)).await.ok().flatten();
        slot.map(Slot).ok_or_else(busy)
    }

    /// Starts a browser, within the time of a call.
    ///
    /// # Errors
    /// `transfer` is used up, or the browser does not start.
    pub async fn open(&self, transfer: &Arc<Transfer>, slot: Slot) -> Result<Browser, BrowserError> {
        if transfer.is_used_up() {
            return Err(BrowserError::refused(transfer.message()));
        }
        let refused = |error: io::Error| {
            tracing::warn!(error = %error, "a browser cannot be started");
            BrowserError::refused(NOT_STARTED)
        };
        let (reader, life) = io::pipe().map_err(refused)?;
        let place = Arc::new(slot.0);
        let facts = Facts::new(life, &place);
        let reach = Reach::new(self.private_hosts.clone(), transfer.clone(), facts.clone());
        let proxy = Proxy::start(reach).await.map_err(refused)?;
        let Launched { commands, messages, process } =
            launch(&self.config, &self.program, (reader, &facts), &proxy, place).map_err(refused)?;
        let devtools = DevTools::new(commands, messages, facts.clone());
        let config = self.config.clone();
        let mut browser = Browser { config, facts, devtools, has_page: false, process, _proxy: proxy };
        let late = |_| Err(BrowserError::refused("it does not answer"));
        match timeout(self.config.call, browser.prepare()).await.unwrap_or_else(late) {
            Ok(()) => Ok(browser),
            Err(error) => {
                let said = browser.process.log();
                tracing::warn!(error = %error, browser.said = said, "a browser cannot be started");
                Err(BrowserError::refused(NOT_STARTED))
            }
        }
    }
}

impl Browser {
    async fn prepare(&self) -> Result<(), BrowserError> {
        let version: Value = self.devtools.browser("Browser.getVersion", json!({})).await?;
        let product = version["product"].as_str().unwrap_or_default();
        if !product.starts_with(HEADLESS_SHELL) {
            return Err(BrowserError::Refused(format!("browser.program is {product}, not a headless shell")));
        }
        self.devtools.open_page().await?;
        let (width, height) = VIEW;
        let view = json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": false });
        let _: Value = self.devtools.page("Emulation.setDeviceMetricsOverride", view).await?;
        Ok(())
    }

    /// Reason why the browser is gone; `None` while it runs.
    #[must_use]
    pub fn gone(&self) -> Option<String> {
        self.facts.give_way();
        self.facts.gone()
    }

    /// Marks the browser as used until the result is dropped.
    #[must_use]
    pub fn in_use(&self) -> InUse {
        InUse::new(&self.facts)
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        self.facts.end("it was closed");
    }
}
