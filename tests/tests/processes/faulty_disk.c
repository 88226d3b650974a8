/* Stands between a process and one place of its disk, loaded before the C library: while a file of that name is in
 * $TIDELINE_FAULTS, what the process does below $TIDELINE_FAULTY fails as on a medium that is broken, or hangs as on one
 * that does not answer. Each call that was hit leaves a byte in the file `hits` there. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

static int asked_for(const char *fault) {
    char path[PATH_MAX];
    const char *faults = getenv("TIDELINE_FAULTS");
    if (faults == NULL) return 0;
    snprintf(path, sizeof path, "%s/%s", faults, fault);
    return access(path, F_OK) == 0;
}

static void hit(void) {
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/hits", getenv("TIDELINE_FAULTS"));
    int file = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (file < 0) return;
    syscall(SYS_write, file, ".", 1);
    close(file);
}

static int is_faulty(int fd) {
    char link[64], path[PATH_MAX];
    const char *faulty = getenv("TIDELINE_FAULTY");
    if (faulty == NULL) return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 0) return 0;
    path[length] = 0;
    return strncmp(path, faulty, strlen(faulty)) == 0;
}

/* Returns whether the call has to fail; first waits as long as it has to hang. */
static int fails(int fd, const char *failing, const char *hanging) {
    int before = errno;
    int failed = asked_for(failing) && is_faulty(fd);
    int hangs = !failed && hanging != NULL && asked_for(hanging) && is_faulty(fd);
    if (failed || hangs) hit();
    while (hangs && asked_for(hanging)) {
        struct timespec moment = {0, 20 * 1000 * 1000};
        nanosleep(&moment, NULL);
    }
    errno = failed ? EIO : before;
    return failed;
}

#define WRITES(fd) if (fails(fd, "writes-fail", "writes-hang")) return -1
#define SYNCS(fd) if (fails(fd, "syncs-fail", "writes-hang")) return -1
#define READS(fd) if (fails(fd, "reads-fail", NULL)) return -1

ssize_t write(int fd, const void *bytes, size_t count) { WRITES(fd); return syscall(SYS_write, fd, bytes, count); }
ssize_t writev(int fd, const struct iovec *parts, int count) { WRITES(fd); return syscall(SYS_writev, fd, parts, count); }
ssize_t pwrite(int fd, const void *bytes, size_t count, off_t at) { WRITES(fd); return syscall(SYS_pwrite64, fd, bytes, count, at); }
ssize_t pwrite64(int fd, const void *bytes, size_t count, off64_t at) { WRITES(fd); return syscall(SYS_pwrite64, fd, bytes, count, at); }
int fsync(int fd) { SYNCS(fd); return syscall(SYS_fsync, fd); }
int fdatasync(int fd) { SYNCS(fd); return syscall(SYS_fdatasync, fd); }
int sync_file_range(int fd, off64_t at, off64_t count, unsigned int flags) { SYNCS(fd); return syscall(SYS_sync_file_range, fd, at, count, flags); }
ssize_t read(int fd, void *bytes, size_t count) { READS(fd); return syscall(SYS_read, fd, bytes, count); }
ssize_t pread(int fd, void *bytes, size_t count, off_t at) { READS(fd); return syscall(SYS_pread64, fd, bytes, count, at); }
ssize_t pread64(int fd, void *bytes, size_t count, off64_t at) { READS(fd); return syscall(SYS_pread64, fd, bytes, count, at); }
