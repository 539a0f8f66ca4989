//! Which of several hosts a connection goes to: to the primary that was promoted last. An old primary that still runs
//! takes writes as well, and never commits them: its standby follows another one.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use tokio_postgres::config::Host;
use tokio_postgres::{Client, Config, Error};

/// How long other hosts may take once a primary has answered.
const OTHERS_TIMEOUT: Duration = Duration::from_millis(300);
/// How long they may take once any host has answered, with an error or as a standby.
const LAST_TIMEOUT: Duration = Duration::from_secs(2);

/// The same address for each host alone.
pub(in crate::postgres) fn each_host(config: &Config) -> Vec<Config> {
    let ports = config.get_ports();
    let count = config.get_hosts().len().max(config.get_hostaddrs().len());
    let alone = |index: usize| {
        let mut one = without_hosts(config);
        match config.get_hosts().get(index) {
            Some(Host::Tcp(name)) => drop(one.host(name)),
            Some(Host::Unix(path)) => drop(one.host_path(path)),
            None => {}
        }
        if let Some(address) = config.get_hostaddrs().get(index) {
            one.hostaddr(*address);
        }
        // One port counts for every host.
        if let Some(port) = ports.get(index).or(ports.first()) {
            one.port(*port);
        }
        one
    };
    (0..count).map(alone).collect()
}

fn without_hosts(config: &Config) -> Config {
    let mut one = Config::new();
    if let Some(user) = config.get_user() {
        one.user(user);
    }
    if let Some(password) = config.get_password() {
        one.password(password);
    }
    if let Some(name) = config.get_dbname() {
        one.dbname(name);
    }
    if let Some(options) = config.get_options() {
        one.options(options);
    }
    if let Some(name) = config.get_application_name() {
        one.application_name(name);
    }
    if let Some(timeout) = config.get_connect_timeout() {
        one.connect_timeout(*timeout);
    }
    if let Some(timeout) = config.get_tcp_user_timeout() {
        one.tcp_user_timeout(*timeout);
    }
    if let Some(interval) = config.get_keepalives_interval() {
        one.keepalives_interval(interval);
    }
    if let Some(retries) = config.get_keepalives_retries() {
        one.keepalives_retries(retries);
    }
    one.ssl_mode(config.get_ssl_mode()).ssl_negotiation(config.get_ssl_negotiation());
    one.keepalives(config.get_keepalives()).keepalives_idle(config.get_keepalives_idle());
    one.target_session_attrs(config.get_target_session_attrs());
    one.channel_binding(config.get_channel_binding());
    one
}

/// The timeline on which a server writes: each promotion begins a higher one. `None` of a standby.
pub(in crate::postgres) async fn timeline(client: &Client) -> Result<Option<u32>, Error> {
    let sql = "SELECT CASE WHEN pg_is_in_recovery() THEN NULL
                 ELSE substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8) END";
    let name: Option<String> = client.query_one(sql, &[]).await?.get(0);
    Ok(name.and_then(|name| u32::from_str_radix(&name, 16).ok()))
}

/// Work that is under way.
type Running<'a, T, E> = Pin<Box<dyn Future<Output = Result<T, E>> + Send + 'a>>;

/// Runs all at once. Those that take much longer than the first one are given up, sooner if that one is a primary.
pub(in crate::postgres) async fn first_ones<T, E>(
    works: Vec<Running<'_, T, E>>,
    is_primary: impl Fn(&T) -> bool,
) -> Vec<Result<T, E>> {
    let mut running = works;
    let mut done: Vec<Result<T, E>> = Vec::new();
    while !running.is_empty() {
        let next = poll_fn(|context| {
            for index in 0..running.len() {
                if let Poll::Ready(result) = running[index].as_mut().poll(context) {
                    drop(running.remove(index));
                    return Poll::Ready(result);
                }
            }
            Poll::Pending
        });
        if done.is_empty() {
            done.push(next.await);
            continue;
        }
        let has_primary = done.iter().flatten().any(&is_primary);
        let timeout = if has_primary { OTHERS_TIMEOUT } else { LAST_TIMEOUT };
        match tokio::time::timeout(timeout, next).await {
            Ok(result) => done.push(result),
            Err(_) => break,
        }
    }
    done
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_host_keeps_its_port_and_all_else() {
        let config: Config = "postgres://u:p@one:1,two:2/d?target_session_attrs=read-write"
            .parse()
            .expect("an address");
        let hosts = each_host(&config);
        let places: Vec<_> =
            hosts.iter().map(|one| (one.get_hosts().to_vec(), one.get_ports().to_vec())).collect();
        let tcp = |name: &str, port| (vec![Host::Tcp(name.into())], vec![port]);
        assert_eq!(places, [tcp("one", 1), tcp("two", 2)]);
        for one in &hosts {
            assert_eq!(one.get_password(), Some(&b"p"[..]));
            assert_eq!((one.get_user(), one.get_dbname()), (Some("u"), Some("d")));
            assert_eq!(one.get_target_session_attrs(), config.get_target_session_attrs());
        }
        let shared: Config = "host=one,two port=7".parse().expect("an address");
        assert!(each_host(&shared).iter().all(|one| one.get_ports() == [7]));
    }

    #[tokio::test]
    async fn a_host_without_an_answer_is_given_up_once_another_has_answered() {
        type Work = Pin<Box<dyn Future<Output = Result<u32, u32>> + Send>>;
        let silent = || -> Work { Box::pin(std::future::pending()) };
        let done = |result| -> Work { Box::pin(std::future::ready(result)) };
        let first = |works| first_ones(works, |number| *number < 9);
        assert_eq!(first(vec![silent(), done(Ok(2)), done(Ok(3))]).await, [Ok(2), Ok(3)]);
        assert_eq!(first(vec![done(Err(1)), done(Ok(2))]).await, [Err(1), Ok(2)]);
        assert_eq!(first(vec![done(Err(1)), done(Err(2))]).await, [Err(1), Err(2)]);
        // A standby or an error says little, but no host may delay an attempt for long.
        assert_eq!(first(vec![silent(), done(Err(1))]).await, [Err(1)]);
        assert_eq!(first(vec![silent(), done(Ok(9)), done(Ok(2))]).await, [Ok(9), Ok(2)]);
    }
}
