//! The server through its front door, in memory, over the real store.

mod api {
    mod apply;
    mod auth;
    mod custom;
    mod deletion;
    mod discovery;
    mod feed;
    mod filled_fields;
    mod harness;
    mod limits;
    mod list;
    mod long_work;
    mod objects;
    mod pages;
    mod readable;
    mod resume;
    mod scale;
    mod secrets;
    mod shortage;
    mod spaces;
    mod unreadable;
    mod watch;
}
