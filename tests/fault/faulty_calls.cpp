// A library to preload: it counts the calls by which a process changes files below one folder and makes one of them
// fail.
//
//     LOCKSTEP_CALLS_FOLDER=/run/here         whose files are meant
//     LOCKSTEP_CALLS_RANK=0                   the rank that is meant (by the launcher's variable; absent: 0)
//     LOCKSTEP_CALLS_LOG=calls.txt            appended: a line a call, "number name path"
//     LOCKSTEP_CALLS_FAULT=17:kill-before     what happens at call 17: kill-before, kill-half, kill-after, short, or a
//                                             number of errno; with a '+' behind, at every call from there on
//
// kill-half and short write half of the bytes; calls that write none are killed before, or done whole.
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

namespace {

enum class Action { none, kill_before, kill_half, kill_after, short_write, error };

struct Settings {
    std::string folder;
    std::string log;
    long number = -1;
    bool from_there_on = false;
    Action action = Action::none;
    int error = 0;
};

Settings read_settings() {
    Settings settings;
    const char* folder = std::getenv("LOCKSTEP_CALLS_FOLDER");
    const char *own = std::getenv("PMI_RANK"), *wanted = std::getenv("LOCKSTEP_CALLS_RANK");
    if (!own) own = std::getenv("OMPI_COMM_WORLD_RANK");
    if (!folder || std::atoi(own ? own : "0") != std::atoi(wanted ? wanted : "0")) return settings;
    settings.folder = std::string(folder) + "/";
    if (const char* log = std::getenv("LOCKSTEP_CALLS_LOG")) settings.log = log;
    const char* fault = std::getenv("LOCKSTEP_CALLS_FAULT");
    if (!fault) return settings;
    char* end = nullptr;
    settings.number = std::strtol(fault, &end, 10);
    std::string word = *end == ':' ? end + 1 : "";
    settings.from_there_on = !word.empty() && word.back() == '+';
    if (settings.from_there_on) word.pop_back();
    if (word == "kill-before")
        settings.action = Action::kill_before;
    else if (word == "kill-half")
        settings.action = Action::kill_half;
    else if (word == "kill-after")
        settings.action = Action::kill_after;
    else if (word == "short")
        settings.action = Action::short_write;
    else
        settings.action = Action::error;
    settings.error = std::atoi(word.c_str());
    return settings;
}

const Settings& settings() {
    static const Settings read = read_settings();
    return read;
}

std::string absolute(int folder, const char* path) {
    if (path[0] == '/') return path;
    char target[PATH_MAX] = "";
    const std::string link = folder == AT_FDCWD ? "/proc/self/cwd" : "/proc/self/fd/" + std::to_string(folder);
    const ssize_t length = ::readlink(link.c_str(), target, sizeof target - 1);
    return std::string(target, length > 0 ? static_cast<std::size_t>(length) : 0) + "/" + path;
}

std::string path_of(int descriptor) {
    char target[PATH_MAX] = "";
    const ssize_t length =
        ::readlink(("/proc/self/fd/" + std::to_string(descriptor)).c_str(), target, sizeof target - 1);
    return {target, length > 0 ? static_cast<std::size_t>(length) : 0};
}

// Opened each time: the witness closes what was open before, and the file that it writes would then have the number.
void add_to_log(const std::string& line) {
    if (settings().log.empty()) return;
    const long file =
        ::syscall(SYS_openat, AT_FDCWD, settings().log.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    if (file < 0) return;
    static_cast<void>(::syscall(SYS_write, file, line.data(), line.size()));
    static_cast<void>(::syscall(SYS_close, file));
}

// What is to happen at this call.
Action next_call(const char* name, const std::string& path) {
    static std::atomic<long> calls{0};
    const Settings& now = settings();
    if (now.folder.empty() || path.compare(0, now.folder.size(), now.folder) != 0) return Action::none;
    const long number = ++calls;
    add_to_log(std::to_string(number) + " " + name + " " + path.substr(now.folder.size()) + "\n");
    const bool meant = number == now.number || (now.from_there_on && now.number > 0 && number > now.number);
    if (number == now.number) add_to_log("fired\n");
    return meant ? now.action : Action::none;
}

[[noreturn]] void die() {
    ::kill(::getpid(), SIGKILL);
    for (;;) ::pause();
}

// Carries out one call: `whole` does it, `half` (may be absent) does half of it.
template <class Whole, class Half>
auto carry_out(const char* name, const std::string& path, const Whole& whole, const Half& half) -> decltype(whole()) {
    using Value = decltype(whole());
    switch (next_call(name, path)) {
        case Action::none:
            return whole();
        case Action::kill_before:
            die();
        case Action::kill_half:
            half();
            die();
        case Action::kill_after:
            whole();
            die();
        case Action::short_write:
            return half();
        case Action::error:
            errno = settings().error;
            return (Value)-1;
    }
    return whole();
}
template <class Whole>
auto carry_out(const char* name, const std::string& path, const Whole& whole) -> decltype(whole()) {
    return carry_out(name, path, whole, whole);
}

template <class Function>
Function next(const char* name) {
    return reinterpret_cast<Function>(::dlsym(RTLD_NEXT, name));
}
#define NEXT(name) static const auto name##_next = next<decltype(&name)>(#name)

mode_t mode_behind(int flags, std::va_list& arguments) {
    return (flags & O_CREAT) != 0 ? va_arg(arguments, mode_t) : 0;
}
int open_file(const char* path, int flags, mode_t mode) {
    NEXT(open);
    return carry_out("open", absolute(AT_FDCWD, path), [&] { return open_next(path, flags, mode); });
}

}  // namespace

extern "C" {

int open(const char* path, int flags, ...) {
    std::va_list arguments;
    va_start(arguments, flags);
    const mode_t mode = mode_behind(flags, arguments);
    va_end(arguments);
    return open_file(path, flags, mode);
}
int open64(const char* path, int flags, ...) {
    std::va_list arguments;
    va_start(arguments, flags);
    const mode_t mode = mode_behind(flags, arguments);
    va_end(arguments);
    return open_file(path, flags, mode);
}
int openat(int folder, const char* path, int flags, ...) {
    NEXT(openat);
    std::va_list arguments;
    va_start(arguments, flags);
    const mode_t mode = mode_behind(flags, arguments);
    va_end(arguments);
    return carry_out("openat", absolute(folder, path), [&] { return openat_next(folder, path, flags, mode); });
}

std::FILE* fopen64(const char* path, const char* mode) {
    NEXT(fopen64);
    const bool failed =
        carry_out("fopen", absolute(AT_FDCWD, path), [] { return 0; }) != 0;  // killed after: before, that is
    return failed ? nullptr : fopen64_next(path, mode);
}
std::FILE* fopen(const char* path, const char* mode) {
    return fopen64(path, mode);
}

ssize_t write(int descriptor, const void* data, std::size_t bytes) {
    NEXT(write);
    if (settings().folder.empty()) return write_next(descriptor, data, bytes);
    return carry_out(
        "write", path_of(descriptor), [&] { return write_next(descriptor, data, bytes); },
        [&] { return write_next(descriptor, data, (bytes + 1) / 2); });
}
ssize_t writev(int descriptor, const iovec* parts, int count) {
    NEXT(writev);
    if (settings().folder.empty()) return writev_next(descriptor, parts, count);
    return carry_out(
        "writev", path_of(descriptor), [&] { return writev_next(descriptor, parts, count); },
        [&] { return writev_next(descriptor, parts, 1); });
}
ssize_t pwrite(int descriptor, const void* data, std::size_t bytes, off_t offset) {
    NEXT(pwrite);
    return carry_out(
        "pwrite", path_of(descriptor), [&] { return pwrite_next(descriptor, data, bytes, offset); },
        [&] { return pwrite_next(descriptor, data, (bytes + 1) / 2, offset); });
}
ssize_t pwrite64(int descriptor, const void* data, std::size_t bytes, off64_t offset) {
    return pwrite(descriptor, data, bytes, offset);
}

int close(int descriptor) {
    NEXT(close);
    if (settings().folder.empty()) return close_next(descriptor);
    return carry_out("close", path_of(descriptor), [&] { return close_next(descriptor); });
}

int fsync(int descriptor) {
    NEXT(fsync);
    return carry_out("fsync", path_of(descriptor), [&] { return fsync_next(descriptor); });
}
int fdatasync(int descriptor) {
    NEXT(fdatasync);
    return carry_out("fdatasync", path_of(descriptor), [&] { return fdatasync_next(descriptor); });
}
int ftruncate(int descriptor, off_t bytes) noexcept {
    NEXT(ftruncate);
    return carry_out("ftruncate", path_of(descriptor), [&] { return ftruncate_next(descriptor, bytes); });
}
int ftruncate64(int descriptor, off64_t bytes) noexcept {
    return ftruncate(descriptor, bytes);
}
int fallocate(int descriptor, int mode, off_t offset, off_t bytes) {
    NEXT(fallocate);
    return carry_out("fallocate", path_of(descriptor), [&] { return fallocate_next(descriptor, mode, offset, bytes); });
}
int fallocate64(int descriptor, int mode, off64_t offset, off64_t bytes) {
    return fallocate(descriptor, mode, offset, bytes);
}

int rename(const char* from, const char* to) noexcept {
    NEXT(rename);
    return carry_out("rename", absolute(AT_FDCWD, to), [&] { return rename_next(from, to); });
}
int renameat(int from_folder, const char* from, int to_folder, const char* to) noexcept {
    NEXT(renameat);
    return carry_out("renameat", absolute(to_folder, to),
                     [&] { return renameat_next(from_folder, from, to_folder, to); });
}
int unlink(const char* path) noexcept {
    NEXT(unlink);
    return carry_out("unlink", absolute(AT_FDCWD, path), [&] { return unlink_next(path); });
}
int unlinkat(int folder, const char* path, int flags) noexcept {
    NEXT(unlinkat);
    return carry_out("unlinkat", absolute(folder, path), [&] { return unlinkat_next(folder, path, flags); });
}
int remove(const char* path) noexcept {
    NEXT(remove);
    return carry_out("remove", absolute(AT_FDCWD, path), [&] { return remove_next(path); });
}
int link(const char* from, const char* to) noexcept {
    NEXT(link);
    return carry_out("link", absolute(AT_FDCWD, to), [&] { return link_next(from, to); });
}
int mkdir(const char* path, mode_t mode) noexcept {
    NEXT(mkdir);
    return carry_out("mkdir", absolute(AT_FDCWD, path), [&] { return mkdir_next(path, mode); });
}
void* mmap(void* address, std::size_t bytes, int protection, int flags, int descriptor, off_t offset) noexcept {
    const auto call = [&] {
        return reinterpret_cast<void*>(::syscall(SYS_mmap, address, bytes, protection, flags, descriptor, offset));
    };
    // The loader and malloc map memory before this library is ready.
    return descriptor < 0 ? call() : carry_out("mmap", path_of(descriptor), call);
}
void* mmap64(void* address, std::size_t bytes, int protection, int flags, int descriptor, off64_t offset) noexcept {
    return mmap(address, bytes, protection, flags, descriptor, offset);
}
}
