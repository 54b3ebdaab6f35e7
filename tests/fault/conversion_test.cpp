// Every kind of call by which a conversion changes a file is made to fail: what has its name is then whole, and an
// error leaves nothing else behind.
#define BOOST_TEST_MODULE conversion
#include <algorithm>
#include <cerrno>
#include <set>

#include "end_to_end/command.hpp"
#include "mounted_memory.hpp"

using namespace lockstep::tests;

namespace {

const std::string to_checkpoint = "convert model out.h5", to_folder = "convert model.h5 out --shard-size 8kB";

struct Fault {
    std::string word;
    bool kills;
};
const std::vector<Fault> faults = {
    {"kill-before", true},        {std::to_string(ENOSPC), false}, {"kill-after", true},
    {std::to_string(EIO), false}, {std::to_string(EACCES), false}, {std::to_string(EINTR), false}};

void make_models(const fs::path& place) {
    fs::copy(source_path("tests/hugging_face/gpt2"), place / "model");
    check_exit(run("convert model model.h5", place), 0);
}

Result convert(const fs::path& place, const std::string& arguments, const std::string& more) {
    return run(arguments, place, 0,
               "LD_PRELOAD=" + build_path("tests/fault/libfaulty_calls.so") +
                   " LOCKSTEP_CALLS_RANK=0 LOCKSTEP_CALLS_FOLDER=" + place.string() +
                   " LOCKSTEP_CALLS_LOG=" + (place / "calls.txt").string() + more);
}

// A checkpoint passes every checksum; a folder has all of its files, as long as they should be.
void check_whole_if_there(const fs::path& place) {
    if (fs::exists(place / "out.h5")) check_exit(run("verify out.h5", place), 0);
    if (fs::exists(place / "out")) check_exit(run("inspect out", place), 0);
}

// On network file systems a file that is open stays when it is removed, and its folder with it.
void check_closed_before_removed(const std::string& calls) {
    const std::size_t removed = calls.find(" unlinkat out.tmp/");
    if (removed == std::string::npos) return;
    const std::size_t closed = calls.find(" close out.tmp/", removed);
    BOOST_TEST(closed == std::string::npos, calls.substr(removed, 2000));
}

void try_every_kind(const std::string& arguments) {
    const Workplace place;
    make_models(place.path());
    check_exit(convert(place.path(), arguments, ""), 0);
    struct Call {
        std::string number, name, path;
    };
    std::vector<Call> calls;
    {
        std::ifstream list(place.path() / "calls.txt");
        std::set<std::string> seen;
        for (Call call; list >> call.number >> call.name >> call.path;)
            if (call.path.starts_with("out") && seen.insert(call.name + call.path).second) calls.push_back(call);
    }
    for (const char* name : {"unlink", "open", "fallocate", "pwrite", "fsync", "close", "rename"})
        BOOST_TEST_REQUIRE(std::any_of(calls.begin(), calls.end(), [&](const Call& call) { return call.name == name; }),
                           name << " is not called");
    std::size_t turn = 0, fired = 0;
    for (const Call& call : calls) {
        const Fault& fault = faults[turn++ % faults.size()];
        BOOST_TEST_CONTEXT(call.name << " " << call.path << ": " << fault.word) {
            for (const char* name : {"out", "out.tmp", "out.h5", "out.h5.tmp", "calls.txt"})
                fs::remove_all(place.path() / name);
            const Result result =
                convert(place.path(), arguments, " LOCKSTEP_CALLS_FAULT=" + call.number + ":" + fault.word);
            BOOST_TEST(!result.timed_out, result);
            const std::string made = read_file(place.path() / "calls.txt");
            fired += contains(made, "fired");
            check_closed_before_removed(made);
            check_whole_if_there(place.path());
            if (result.exit_code == 0)
                BOOST_TEST((fs::exists(place.path() / "out") || fs::exists(place.path() / "out.h5")));
            if (fault.kills) continue;
            BOOST_TEST(result.exit_code < 4, result);
            for (const char* name : {"out.tmp", "out.h5.tmp"}) BOOST_TEST(!fs::exists(place.path() / name), name);
        }
    }
    BOOST_TEST(fired > calls.size() * 9 / 10);
}

}  // namespace

BOOST_AUTO_TEST_SUITE(conversion)

BOOST_AUTO_TEST_CASE(a_checkpoint_has_its_name_only_when_it_is_whole) {
    try_every_kind(to_checkpoint);
}

BOOST_AUTO_TEST_CASE(a_folder_has_its_name_only_when_it_is_whole) {
    try_every_kind(to_folder);
}

// Tokens without their index would pass for raw ones, and beside another text's index for that text's.
BOOST_AUTO_TEST_CASE(a_pair_of_megatrons_is_whole_or_refused) {
    const Workplace place;
    const fs::path folder = place.path();
    write_file(folder / "old.txt", make_text(500, 7));
    check_exit(run("pack --to megatron --out old old.txt", folder), 0);
    const std::string pack = "pack --to megatron --out out text";
    const auto begin = [&] {
        for (const char* ending : {".bin", ".idx"})
            fs::copy_file(folder / ("old" + std::string(ending)), folder / ("out" + std::string(ending)),
                          fs::copy_options::overwrite_existing);
        fs::remove(folder / "calls.txt");
    };
    begin();
    check_exit(convert(folder, pack, ""), 0);
    std::vector<std::string> numbers;
    {
        std::ifstream list(folder / "calls.txt");
        for (std::string number, name, path; list >> number >> name >> path;)
            if (path.starts_with("out")) numbers.push_back(number);
    }
    BOOST_TEST_REQUIRE(numbers.size() >= 4u);
    const std::string tokens = read_file(folder / "out.bin"), index = read_file(folder / "out.idx"),
                      old_tokens = read_file(folder / "old.bin"), old_index = read_file(folder / "old.idx");
    int refused = 0;
    for (const std::string& number : numbers)
        for (const char* word : {"kill-before", "kill-after"}) {
            begin();
            convert(folder, pack, " LOCKSTEP_CALLS_FAULT=" + number + ":" + word);
            const std::string now = read_file(folder / "out.bin"), beside = read_file(folder / "out.idx");
            BOOST_TEST_CONTEXT("call " << number << ", " << word)
            if (fs::exists(folder / "out.bin")) {
                BOOST_TEST(((now == tokens && beside == index) || (now == old_tokens && beside == old_index)));
            } else {
                BOOST_TEST(fs::exists(folder / "out.idx"));  // an index without tokens is refused
                ++refused;
            }
        }
    BOOST_TEST(refused > 0);
}

BOOST_AUTO_TEST_CASE(a_full_disk_leaves_nothing) {
    const Workplace place;
    make_models(place.path());
    const MountedMemory room(place.path() / "disk", "size=16k");
    if (!room.mounted()) return;
    for (const std::string arguments : {"convert model disk/out.h5", "convert model.h5 disk/out"}) {
        const Result result = run(arguments, place.path(), 2);
        check_exit(result, 1);
        BOOST_TEST(names_in(place.path() / "disk").empty(), result);
    }
}

BOOST_AUTO_TEST_SUITE_END()
