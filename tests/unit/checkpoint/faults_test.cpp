// Full disks, failing writes and kills: what was committed before survives.
#define BOOST_TEST_MODULE checkpoint_faults
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include <boost/test/unit_test.hpp>
#include <csignal>
#include <cstdlib>

#include "checkpoint_fixture.hpp"
#include "device/parallel.hpp"
#include "mounted_memory.hpp"

using namespace lockstep;
using namespace lockstep::checkpoint_tests;
using lockstep::tests::MountedMemory;
namespace fs = std::filesystem;

namespace {

struct InjectedFault {
    explicit InjectedFault(const char* fault) { setenv("LOCKSTEP_FAULT", fault, 1); }
    ~InjectedFault() { unsetenv("LOCKSTEP_FAULT"); }
};

std::size_t files_in(const std::string& folder) {
    return static_cast<std::size_t>(std::distance(fs::directory_iterator(folder), fs::directory_iterator()));
}

}  // namespace

BOOST_AUTO_TEST_CASE(a_full_disk_at_reservation_leaves_the_earlier_one) {
    const std::string folder = empty_test_folder("reserve");
    const Tensors written(few_small());
    auto writer = solo_writer(folder);
    BOOST_TEST(writer.write_now(some_contents(1), written.entries));
    {
        const InjectedFault fault("checkpoint_reserve:*:*:enospc");
        BOOST_TEST(!writer.begin(some_contents(2), written.entries));
        BOOST_TEST((writer.progress() == checkpoint::Writer::Progress::idle));
        BOOST_TEST(!writer.write_now(some_contents(2), written.entries));
        BOOST_TEST(!writer.finish());
    }
    BOOST_TEST(files_in(folder) == 1u);
    checkpoint::verify(in(folder, 1));
    BOOST_TEST(writer.write_now(some_contents(2), written.entries));
    BOOST_TEST(writer.finish());
    checkpoint::verify(in(folder, 2));
}

BOOST_AUTO_TEST_CASE(a_failing_write_leaves_the_earlier_one) {
    const std::string folder = empty_test_folder("write");
    const Tensors written(odd_sizes());
    auto writer = solo_writer(folder);
    BOOST_TEST(writer.write_now(some_contents(1), written.entries));
    for (const char* action : {"checkpoint_write:*:*:enospc", "checkpoint_write:*:*:throw"}) {
        const InjectedFault fault(action);
        BOOST_TEST(writer.begin(some_contents(2), written.entries));
        while (writer.progress() == checkpoint::Writer::Progress::writing) usleep(1000);
        BOOST_TEST((writer.progress() == checkpoint::Writer::Progress::failed));
        BOOST_TEST(!writer.commit());
        BOOST_TEST(files_in(folder) == 1u);
    }
    std::vector<std::string> skipped;
    BOOST_TEST(checkpoint::find_newest(folder, skipped) == in(folder, 1));
    BOOST_TEST(skipped.empty());
}

// On a disk, where blocks of whole pages go past the page cache, and in memory, which some systems cache in any case.
BOOST_AUTO_TEST_CASE(what_the_disk_gives_back_is_compared) {
    std::vector<std::string> folders = {empty_test_folder("damage")};
    if (fs::exists("/dev/shm")) folders.push_back("/dev/shm/lockstep-damage-" + std::to_string(getpid()));
    for (const std::string& folder : folders)
        for (const std::int64_t rows : {5, 4096}) {  // a part of a page; whole pages, and what is left over
            fs::remove_all(folder);
            fs::create_directories(folder);
            const Tensors written({{"parameters/a/weight", {rows, 3}}, {"parameters/b", {rows, 1024}}});
            auto writer = solo_writer(folder);
            BOOST_TEST(writer.write_now(some_contents(1), written.entries));
            {
                const InjectedFault fault("checkpoint_data:*:*:damage");
                BOOST_TEST(!writer.write_now(some_contents(2), written.entries));
            }
            BOOST_TEST(files_in(folder) == 1u);
            checkpoint::verify(in(folder, 1));
            BOOST_TEST(writer.write_now(some_contents(3), written.entries));
            BOOST_TEST(writer.cost().bytes == fs::file_size(in(folder, 3)));
            checkpoint::verify(in(folder, 3));
        }
    fs::remove_all(folders.back());
}

BOOST_AUTO_TEST_CASE(a_kill_at_any_point_leaves_the_earlier_one) {
    const std::string folder = empty_test_folder("kill");
    const Tensors written(odd_sizes());
    BOOST_TEST(solo_writer(folder).write_now(some_contents(1), written.entries));
    for (const char* point : {"checkpoint_write", "checkpoint_before_rename"}) {
        const pid_t child = fork();
        BOOST_REQUIRE(child >= 0);
        if (child == 0) {
            setenv("LOCKSTEP_FAULT", (std::string(point) + ":*:*:kill").c_str(), 1);
            set_threads(1);
            solo_writer(folder).write_now(some_contents(2), written.entries);
            _exit(0);
        }
        int status = 0;
        BOOST_REQUIRE(waitpid(child, &status, 0) == child);
        BOOST_REQUIRE(WIFSIGNALED(status));
        BOOST_TEST(WTERMSIG(status) == SIGKILL);
        BOOST_TEST(fs::exists(in(folder, 2) + ".tmp"));
        BOOST_TEST(!fs::exists(in(folder, 2)));
        std::vector<std::string> skipped;
        BOOST_TEST(checkpoint::find_newest(folder, skipped) == in(folder, 1));
        auto next_launch = solo_writer(folder);
        BOOST_TEST(files_in(folder) == 1u);
    }
}

BOOST_AUTO_TEST_CASE(a_folder_that_cannot_be_made_is_a_warning) {
    const std::string folder = empty_test_folder("no_folder");
    write_bytes(folder + "/file", "x");
    auto writer = solo_writer(folder + "/late");
    fs::create_symlink("/proc/self/nowhere", folder + "/late");
    BOOST_TEST(!writer.write_now(some_contents(1), Tensors(few_small()).entries));
    BOOST_CHECK_THROW(solo_writer(folder + "/file"), Error);
}

BOOST_AUTO_TEST_CASE(a_disk_that_is_really_full_leaves_the_earlier_one) {
    const std::string folder = empty_test_folder("full_disk");
    const MountedMemory disk(folder, "size=40m");
    if (!disk.mounted()) return;
    const Tensors written(odd_sizes());  // 14 MB
    auto writer = solo_writer(folder, 4);
    BOOST_TEST(writer.write_now(some_contents(1), written.entries));
    BOOST_TEST(writer.write_now(some_contents(2), written.entries));
    BOOST_TEST(!writer.write_now(some_contents(3), written.entries));  // no room for the tensors
    BOOST_TEST(files_in(folder) == 2u);
    struct statvfs room {};
    BOOST_REQUIRE(statvfs(folder.c_str(), &room) == 0);
    const std::size_t left = room.f_bavail * room.f_frsize;
    for (const std::size_t spare :
         {std::size_t{0}, std::size_t{4096}, std::size_t{200'000}}) {  // no room for the metadata
        write_bytes(folder + "/filler", std::string(left - spare, 'f'));
        BOOST_TEST(!writer.write_now(some_contents(3), written.entries));
        fs::remove(folder + "/filler");
    }
    checkpoint::verify(in(folder, 1));
    checkpoint::verify(in(folder, 2));
    fs::remove(in(folder, 1));
    BOOST_TEST(writer.write_now(some_contents(3), written.entries));
    checkpoint::verify(in(folder, 3));
}
