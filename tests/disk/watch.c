/* Preloaded into a process: writes down every change that it makes below a folder, and lets the n-th of them fail. Which
   is said by calls, or by the environment to a process that another one starts.

   The log holds records of three lines' worth of fields: kind, path, second path or offset, length, then the bytes. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char root[4096];
static int log_to = -1;
static long done, fails_at, fails_until;
static int fails_with;

static ssize_t (*real_write)(int, const void *, size_t);
#define REAL(name) static __typeof__(&name) real; if (!real) real = (__typeof__(&name))dlsym(RTLD_NEXT, #name)

void disk_watch(const char *folder, int log) { snprintf(root, sizeof root, "%s", folder); log_to = log; done = 0; }
void disk_fail(long at, long until, int with) { done = 0; fails_at = at; fails_until = until; fails_with = with; }
long disk_count(void) { return done; }

__attribute__((constructor)) static void begin(void) {
    const char *folder = getenv("DISK_ROOT");
    if (!folder) return;
    disk_watch(folder, -1);
    disk_fail(atol(getenv("DISK_FAIL_AT")), atol(getenv("DISK_FAIL_UNTIL")), atoi(getenv("DISK_FAIL_WITH")));
}

static int is_ours(const char *path) { return root[0] && !strncmp(path, root, strlen(root)); }

static void note(const char *kind, const char *path, const char *other, long offset, const void *data, size_t size) {
    char head[9000];
    if (log_to < 0) return;
    if (!real_write) real_write = (__typeof__(real_write))dlsym(RTLD_NEXT, "write");
    int length = snprintf(head, sizeof head, "%s\n%s\n%s\n%ld\n%zu\n", kind, path, other, offset, size);
    real_write(log_to, head, length);
    if (size) real_write(log_to, data, size);
}

void disk_note(const char *text) { note("note", text, "", 0, NULL, 0); }

static int fails(void) {
    done++;
    if (fails_at && done >= fails_at && done <= fails_until) { errno = fails_with; return 1; }
    return 0;
}

static int find(int descriptor, char *path) {
    char link[64];
    int kept = errno;
    snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    ssize_t length = readlink(link, path, 4095);
    errno = kept;
    if (length < 0) return 0;
    path[length] = 0;
    return is_ours(path);
}

static void join(int folder, const char *name, char *path) {
    if (name[0] == '/' || folder == AT_FDCWD) { snprintf(path, 8192, "%s", name); return; }
    char parent[4096] = "";
    find(folder, parent);
    snprintf(path, 8192, "%s/%s", parent, name);
}

static int open_at(int folder, const char *name, int flags, mode_t mode) {
    REAL(openat);
    char path[8192];
    join(folder, name, path);
    int writes = is_ours(path) && (flags & (O_CREAT | O_TRUNC));
    if (writes && fails()) return -1;
    struct stat before;
    int is_new = writes && stat(path, &before);
    int descriptor = real(folder, name, flags, mode);
    if (descriptor >= 0 && writes) note(is_new ? "create" : (flags & O_TRUNC) ? "truncate" : "open", path, "", 0, NULL, 0);
    return descriptor;
}

#define MODE(flags) mode_t mode = 0; if (flags & O_CREAT) { va_list list; va_start(list, flags); mode = va_arg(list, mode_t); va_end(list); }
int open(const char *path, int flags, ...) { MODE(flags) return open_at(AT_FDCWD, path, flags, mode); }
int open64(const char *path, int flags, ...) { MODE(flags) return open_at(AT_FDCWD, path, flags, mode); }
int openat(int folder, const char *path, int flags, ...) { MODE(flags) return open_at(folder, path, flags, mode); }
int openat64(int folder, const char *path, int flags, ...) { MODE(flags) return open_at(folder, path, flags, mode); }

ssize_t write(int descriptor, const void *data, size_t size) {
    REAL(write);
    char path[4096];
    if (!find(descriptor, path)) return real(descriptor, data, size);
    if (fails()) return -1;
    off_t offset = lseek(descriptor, 0, SEEK_CUR);
    ssize_t written = real(descriptor, data, size);
    if (written > 0) note("write", path, "", offset, data, written);
    return written;
}

static ssize_t write_at(int descriptor, const void *data, size_t size, off_t offset) {
    REAL(pwrite);
    char path[4096];
    if (!find(descriptor, path)) return real(descriptor, data, size, offset);
    if (fails()) return -1;
    ssize_t written = real(descriptor, data, size, offset);
    if (written > 0) note("write", path, "", offset, data, written);
    return written;
}
ssize_t pwrite(int descriptor, const void *data, size_t size, off_t offset) { return write_at(descriptor, data, size, offset); }
ssize_t pwrite64(int descriptor, const void *data, size_t size, off_t offset) { return write_at(descriptor, data, size, offset); }

int posix_fallocate(int descriptor, off_t offset, off_t size) {
    REAL(posix_fallocate);
    char path[4096];
    if (!find(descriptor, path)) return real(descriptor, offset, size);
    if (fails()) return errno;
    int problem = real(descriptor, offset, size);
    if (!problem) note("reserve", path, "", offset + size, NULL, 0);
    return problem;
}
int posix_fallocate64(int descriptor, off_t offset, off_t size) { return posix_fallocate(descriptor, offset, size); }

int fsync(int descriptor) {
    REAL(fsync);
    char path[4096];
    if (!find(descriptor, path)) return real(descriptor);
    if (fails()) return -1;
    note("sync", path, "", 0, NULL, 0);
    return 0;
}

#define PAIR(name) int name(const char *from, const char *to) { REAL(name); \
    if (!is_ours(to)) return real(from, to); \
    if (fails()) return -1; \
    int problem = real(from, to); if (!problem) note(#name, from, to, 0, NULL, 0); return problem; }
PAIR(rename)
PAIR(link)

/* What is renamed and linked relative to open folders is noted as the same with whole paths. */
static int pair_at(const char *kind, int problem, const char *from, const char *to) {
    if (!problem) note(kind, from, to, 0, NULL, 0);
    return problem;
}
int renameat(int from_folder, const char *from, int to_folder, const char *to) {
    REAL(renameat);
    char before[8192], after[8192];
    join(from_folder, from, before);
    join(to_folder, to, after);
    if (!is_ours(after)) return real(from_folder, from, to_folder, to);
    if (fails()) return -1;
    return pair_at("rename", real(from_folder, from, to_folder, to), before, after);
}
int linkat(int from_folder, const char *from, int to_folder, const char *to, int flags) {
    REAL(linkat);
    char before[8192], after[8192];
    join(from_folder, from, before);
    join(to_folder, to, after);
    if (!is_ours(after)) return real(from_folder, from, to_folder, to, flags);
    if (fails()) return -1;
    return pair_at("link", real(from_folder, from, to_folder, to, flags), before, after);
}

int unlinkat(int folder, const char *name, int flags) {
    REAL(unlinkat);
    char path[8192];
    join(folder, name, path);
    if (!is_ours(path)) return real(folder, name, flags);
    if (fails()) return -1;
    int problem = real(folder, name, flags);
    if (!problem) note("remove", path, "", 0, NULL, 0);
    return problem;
}
int unlink(const char *path) { return unlinkat(AT_FDCWD, path, 0); }
int rmdir(const char *path) { return unlinkat(AT_FDCWD, path, AT_REMOVEDIR); }

int mkdirat(int folder, const char *name, mode_t mode) {
    REAL(mkdirat);
    char path[8192];
    join(folder, name, path);
    if (!is_ours(path)) return real(folder, name, mode);
    if (fails()) return -1;
    int problem = real(folder, name, mode);
    if (!problem) note("mkdir", path, "", 0, NULL, 0);
    return problem;
}
int mkdir(const char *path, mode_t mode) { return mkdirat(AT_FDCWD, path, mode); }
