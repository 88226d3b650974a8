//! What the process costs: memory, CPU time, open files, read from `/proc/self` when scraped.
//!
//! Where there is no `/proc`, the metrics are absent.

use std::fs;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Unit;

/// Clock ticks per second in `/proc/self/stat`: `USER_HZ`, 100 on every architecture that Linux runs containers on.
const TICKS_PER_SECOND: f64 = 100.0;

/// Registers as a collector: `registry.register_collector(Box::new(ProcessCollector))`.
#[derive(Debug)]
pub struct ProcessCollector;

impl Collector for ProcessCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        if let Some(bytes) = fs::read_to_string("/proc/self/status").ok().as_deref().and_then(resident_bytes) {
            let metric = ConstGauge::new(bytes);
            let descriptor = encoder.encode_descriptor(
                "process_resident_memory",
                "Resident memory",
                Some(&Unit::Bytes),
                metric.metric_type(),
            )?;
            metric.encode(descriptor)?;
        }
        if let Some(seconds) = fs::read_to_string("/proc/self/stat").ok().as_deref().and_then(cpu_seconds) {
            let metric = ConstCounter::new(seconds);
            let descriptor = encoder.encode_descriptor(
                "process_cpu",
                "CPU time in user and system mode",
                Some(&Unit::Seconds),
                metric.metric_type(),
            )?;
            metric.encode(descriptor)?;
        }
        if let Some(count) = fs::read_dir("/proc/self/fd").ok().and_then(|entries| i64::try_from(entries.count()).ok())
        {
            let metric = ConstGauge::new(count);
            let descriptor =
                encoder.encode_descriptor("process_open_fds", "Open file descriptors", None, metric.metric_type())?;
            metric.encode(descriptor)?;
        }
        Ok(())
    }
}

/// `VmRSS` of `/proc/self/status`, which is in KiB.
fn resident_bytes(status: &str) -> Option<i64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: i64 = line.split_whitespace().next()?.parse().ok()?;
    kib.checked_mul(1024)
}

/// `utime` and `stime`, fields 14 and 15 of `/proc/self/stat` (proc(5)).
fn cpu_seconds(stat: &str) -> Option<f64> {
    // Field 2 is the program's name in parentheses and may hold spaces and parentheses itself; field 3 follows it.
    let (_, after_name) = stat.rsplit_once(')')?;
    let mut fields = after_name.split_whitespace().skip(11);
    let user: u32 = fields.next()?.parse().ok()?;
    let system: u32 = fields.next()?.parse().ok()?;
    Some((f64::from(user) + f64::from(system)) / TICKS_PER_SECOND)
}

#[cfg(test)]
mod tests;
