//! The binaries as processes: what only a process has. Their messages and exit codes when something is wrong, that nothing
//! else stops with them, and what survives kill −9.

mod bad_input;
mod clocks;
mod crowds;
mod disk;
mod duplicates;
mod faulty_disk;
mod golden;
mod harness;
mod ignored;
mod image;
mod life;
mod moving;
mod proxies;
mod replicas;
mod stolen_key;
mod usage;
mod versions;
mod views;
