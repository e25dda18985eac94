/* A disk under one database that keeps only what was synced.
 *
 * Preloaded into the server. Files whose path begins with UNSYNCED_PATH are written as ever, which is what the page cache
 * of the machine would show; beside each stands NAME.platter with what the disk would have if the power failed now: fsync
 * and fdatasync bring over what was written since the last one, and nothing else does. NAME.unsynced is there while the two
 * differ. The memory of the write-ahead log (-shm), which needs no disk, and the server's lock file are left alone.
 *
 * Making and deleting a file lasts at once: that is the file system's journal, not the database's care.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define FDS 4096
#define SYNC_MICROS 10000

struct range {
    off_t from, to;
};

/* A file of the database, however often it is open. */
struct file {
    char path[PATH_MAX];
    int platter;
    struct range *dirty;
    size_t dirty_count, dirty_room;
    struct file *next;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct file *files;
static struct file *open_files[FDS];

#define REAL(name) ((__typeof__(&name))real(#name))

static void *real(const char *name) {
    void *found = dlsym(RTLD_NEXT, name);
    if (found == NULL) {
        fprintf(stderr, "unsynced: no %s\n", name);
        abort();
    }
    return found;
}

static void demand(bool holds, const char *what) {
    if (!holds) {
        fprintf(stderr, "unsynced: cannot %s: %s\n", what, strerror(errno));
        abort();
    }
}

static bool ends_with(const char *text, const char *end) {
    size_t length = strlen(text), end_length = strlen(end);
    return length >= end_length && strcmp(text + length - end_length, end) == 0;
}

static bool is_watched(const char *path) {
    const char *prefix = getenv("UNSYNCED_PATH");
    return prefix != NULL && strncmp(path, prefix, strlen(prefix)) == 0 && !ends_with(path, "-shm") &&
           !ends_with(path, ".lock") && !ends_with(path, ".platter") && !ends_with(path, ".unsynced");
}

static void beside(const struct file *file, const char *suffix, char *path) {
    int length = snprintf(path, PATH_MAX, "%s%s", file->path, suffix);
    demand(length < PATH_MAX, "name a file");
}

/* Shows whether the power would take something away now. */
static void mark(const struct file *file, bool is_unsynced) {
    char name[PATH_MAX];
    beside(file, ".unsynced", name);
    if (is_unsynced) {
        REAL(close)(REAL(open)(name, O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
    } else {
        REAL(unlink)(name);
    }
}

/* Copies what the file has in a range to the platter. */
static void bring_over(struct file *file, int fd, struct range range) {
    char block[65536];
    while (range.from < range.to) {
        off_t rest = range.to - range.from;
        size_t want = rest < (off_t)sizeof block ? (size_t)rest : sizeof block;
        ssize_t got = pread(fd, block, want, range.from);
        demand(got >= 0, "read what was written");
        if (got == 0) return;
        demand(REAL(pwrite)(file->platter, block, (size_t)got, range.from) == got, "write to the platter");
        range.from += got;
    }
}

static struct file *file_of(int fd) { return fd >= 0 && fd < FDS ? open_files[fd] : NULL; }

static void watch(int fd, const char *path) {
    if (fd < 0 || !is_watched(path)) return;
    pthread_mutex_lock(&lock);
    demand(fd < FDS, "watch so many files");
    struct file *file = files;
    while (file != NULL && strcmp(file->path, path) != 0) file = file->next;
    if (file == NULL) {
        file = calloc(1, sizeof *file);
        demand(file != NULL, "get memory");
        snprintf(file->path, PATH_MAX, "%s", path);
        char name[PATH_MAX];
        beside(file, ".platter", name);
        /* What is there when the process first opens the file is on the disk. */
        file->platter = REAL(open)(name, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
        demand(file->platter >= 0, "make a platter");
        int copy = REAL(open)(path, O_RDONLY | O_CLOEXEC);
        demand(copy >= 0, "open the file");
        bring_over(file, copy, (struct range){0, LONG_MAX});
        REAL(close)(copy);
        file->next = files;
        files = file;
    }
    open_files[fd] = file;
    pthread_mutex_unlock(&lock);
}

/* Notes what was written and is not synced. */
static void soil(struct file *file, off_t from, off_t to) {
    if (file == NULL || from >= to) return;
    pthread_mutex_lock(&lock);
    if (file->dirty_count == 0) mark(file, true);
    struct range *last = file->dirty_count > 0 ? &file->dirty[file->dirty_count - 1] : NULL;
    if (last != NULL && last->to == from) {
        last->to = to;
    } else {
        if (file->dirty_count == file->dirty_room) {
            file->dirty_room = file->dirty_room * 2 + 64;
            file->dirty = realloc(file->dirty, file->dirty_room * sizeof *file->dirty);
            demand(file->dirty != NULL, "get memory");
        }
        file->dirty[file->dirty_count++] = (struct range){from, to};
    }
    pthread_mutex_unlock(&lock);
}

/* Syncs, and only when that is done does the platter have what was written before. Other writers wait with their notes. */
static int sync_file(int fd, int (*sync)(int)) {
    struct file *file = file_of(fd);
    if (file == NULL) return sync(fd);
    pthread_mutex_lock(&lock);
    struct stat before;
    demand(fstat(fd, &before) == 0, "ask for the size");
    /* A disk takes its time, and a power loss in that time is the one that matters. */
    usleep(SYNC_MICROS);
    int failed = sync(fd);
    if (failed == 0) {
        for (size_t i = 0; i < file->dirty_count; i++) bring_over(file, fd, file->dirty[i]);
        file->dirty_count = 0;
        mark(file, false);
        demand(REAL(ftruncate)(file->platter, before.st_size) == 0, "cut the platter");
    }
    pthread_mutex_unlock(&lock);
    return failed;
}

#define OPEN(name)                                                 \
    int name(const char *path, int flags, ...) {                   \
        va_list arguments;                                         \
        va_start(arguments, flags);                                \
        mode_t mode = flags & O_CREAT ? va_arg(arguments, mode_t) : 0;           \
        va_end(arguments);                                         \
        int fd = REAL(name)(path, flags, mode);                    \
        watch(fd, path);                                           \
        return fd;                                                 \
    }
OPEN(open)
OPEN(open64)

int close(int fd) {
    if (file_of(fd) != NULL) open_files[fd] = NULL;
    return REAL(close)(fd);
}

ssize_t write(int fd, const void *bytes, size_t count) {
    struct file *file = file_of(fd);
    off_t at = file != NULL ? lseek(fd, 0, SEEK_CUR) : 0;
    ssize_t written = REAL(write)(fd, bytes, count);
    soil(file, at, at + written);
    return written;
}

#define PWRITE(name, offset_type)                                             \
    ssize_t name(int fd, const void *bytes, size_t count, offset_type at) {   \
        ssize_t written = REAL(name)(fd, bytes, count, at);                   \
        soil(file_of(fd), at, at + written);                                  \
        return written;                                                       \
    }
PWRITE(pwrite, off_t)
PWRITE(pwrite64, off64_t)

#define FTRUNCATE(name, offset_type)                                          \
    int name(int fd, offset_type size) {                                      \
        struct stat before;                                                   \
        struct file *file = file_of(fd);                                      \
        if (file != NULL) demand(fstat(fd, &before) == 0, "ask for the size"); \
        int failed = REAL(name)(fd, size);                                    \
        /* What is cut off and written again later has zeros in between. */   \
        if (file != NULL && failed == 0) soil(file, size, before.st_size);    \
        return failed;                                                        \
    }
FTRUNCATE(ftruncate, off_t)
FTRUNCATE(ftruncate64, off64_t)

int fsync(int fd) { return sync_file(fd, REAL(fsync)); }

int fdatasync(int fd) { return sync_file(fd, REAL(fdatasync)); }

int unlink(const char *path) {
    if (is_watched(path)) {
        pthread_mutex_lock(&lock);
        for (struct file **link = &files; *link != NULL; link = &(*link)->next) {
            if (strcmp((*link)->path, path) != 0) continue;
            char name[PATH_MAX];
            beside(*link, ".platter", name);
            REAL(unlink)(name);
            mark(*link, false);
            /* Whoever still has it open writes to a file without a name; a new one of this name is another file. */
            *link = (*link)->next;
            break;
        }
        pthread_mutex_unlock(&lock);
    }
    return REAL(unlink)(path);
}
