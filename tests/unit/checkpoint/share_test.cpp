// How a rank's share is written and read: by one thread or several, block by block or joined, from copies or from the
// tensors.
#define BOOST_TEST_MODULE checkpoint_share
#include "checkpoint/share.hpp"

#include <unistd.h>

#include <boost/test/unit_test.hpp>
#include <cstdlib>
#include <thread>

#include "checkpoint/holdings.hpp"
#include "checkpoint/read_ahead.hpp"
#include "checkpoint/retention.hpp"
#include "checkpoint/stream.hpp"
#include "checkpoint/unfinished.hpp"
#include "checkpoint_fixture.hpp"

using namespace lockstep;
using namespace lockstep::checkpoint_tests;
using checkpoint::Pace;
using checkpoint::Stretch;
using checkpoint::Values;
using config::CheckpointVerify;
namespace fs = std::filesystem;

namespace {

constexpr std::uint64_t mebibyte = 1 << 20;
const std::vector<Pace> paces = {{1, 0}, {1, 16 * mebibyte}, {2, 0}, {4, 6 * mebibyte}, {4, 16 * mebibyte}};

struct InjectedFault {
    explicit InjectedFault(const char* fault) { setenv("LOCKSTEP_FAULT", fault, 1); }
    ~InjectedFault() { unsetenv("LOCKSTEP_FAULT"); }
};

// A checkpoint that is written step by step, alone.
class Steps {
  public:
    Steps(std::string path, const std::vector<Entry>& entries, CheckpointVerify verify, const Pace& pace, Values values)
        : path_(std::move(path)), share_(checkpoint::unfinished_name(path_), lay_out(entries), 0, 1, verify, pace) {
        const auto holdings = checkpoint::gather_holdings(share_.layout().places, entries, *group_);
        checkpoint::Collector collector(share_.layout(), holdings.spreads, entries, *group_, 1'300'000);
        collector.check_cover();
        BOOST_TEST(!share_.collect(collector, values).has_value());
    }
    // Whether it has its name.
    bool finish() {
        share_.wait();
        if (share_.failure()) return false;
        share_.verify_borders();
        checkpoint::publish(path_);
        return true;
    }
    checkpoint::Share& share() { return share_; }

  private:
    checkpoint::Layout lay_out(const std::vector<Entry>& entries) const {
        return checkpoint::lay_out(path_, some_contents(1), checkpoint::union_of_tensors(entries, *group_));
    }
    std::string path_;
    std::unique_ptr<cluster::HostGroup> group_ = cluster::make_solo_group();
    checkpoint::Share share_;
};

// Its share is large: several threads write it.
std::vector<Tensors::Named> large() {
    auto tensors = odd_sizes();
    tensors.push_back({"parameters/large", {19, 1024, 1024}});
    return tensors;
}

// Block by block by one thread, from a source: another way than the writer's.
void write_plainly(const std::string& path, const Tensors& tensors) {
    const auto group = cluster::make_solo_group();
    std::vector<checkpoint::TensorInfo> infos = checkpoint::union_of_tensors(tensors.entries, *group);
    checkpoint::write_from(
        path, some_contents(1), infos,
        [&](const std::string& name, std::int64_t first, std::int64_t count, float* to) {
            const auto entry = std::find_if(tensors.entries.begin(), tensors.entries.end(),
                                            [&](const Entry& one) { return one.path == name; });
            std::copy_n(entry->value.fp32() + first, count, to);
        },
        *group);
}

checkpoint::Layout layout_of(const std::string& path) {
    checkpoint::Layout layout = checkpoint::read_header(path).layout;
    std::erase_if(layout.places, checkpoint::is_tokenizer_file);
    return layout;
}

}  // namespace

BOOST_AUTO_TEST_CASE(however_it_is_written_the_file_is_the_same) {
    const std::string folder = empty_test_folder("share_paces"), plain = in(folder + "/plain", 1);
    fs::create_directories(folder + "/plain");
    const Tensors tensors(odd_sizes());
    write_plainly(plain, tensors);
    const std::string expected = bytes_of(plain);
    for (const Pace& pace : paces)
        for (const auto verify : {CheckpointVerify::read, CheckpointVerify::written})
            for (const auto values : {Values::copied, Values::left_in_place}) {
                Steps steps(in(folder, 1), tensors.entries, verify, pace, values);
                steps.share().start();
                BOOST_TEST(steps.finish());
                BOOST_TEST((bytes_of(in(folder, 1)) == expected),
                           pace.threads << " threads, " << pace.stretch_bytes << " bytes, " << config::word_of(verify));
            }
}

BOOST_AUTO_TEST_CASE(a_large_one_is_the_same_too) {
    const std::string folder = empty_test_folder("share_large"), plain = in(folder + "/plain", 1);
    fs::create_directories(folder + "/plain");
    const Tensors tensors(large());
    write_plainly(plain, tensors);
    for (const auto verify : {CheckpointVerify::read, CheckpointVerify::written}) {
        checkpoint::Writer writer(folder, 2, cluster::make_solo_group(), verify);
        BOOST_TEST(writer.write_now(some_contents(1), tensors.entries));
        BOOST_TEST((bytes_of(in(folder, 1)) == bytes_of(plain)), config::word_of(verify));
    }
    Tensors read(large());
    read.fill(-1);
    checkpoint::load(plain, read.entries, *cluster::make_solo_group());
    BOOST_TEST((read == tensors));
    std::uint64_t bytes = some_contents(1).tokenizer_files.front().contents.size();
    for (const Entry& entry : tensors.entries) bytes += entry.value.bytes();
    BOOST_TEST(checkpoint::verify(plain) == bytes);
}

BOOST_AUTO_TEST_CASE(stretches_cover_the_blocks_in_order) {
    const std::string folder = empty_test_folder("share_stretches");
    const Tensors tensors(large());
    solo_writer(folder).write_now(some_contents(1), tensors.entries);
    const checkpoint::Layout layout = layout_of(in(folder, 1));
    const auto share = checkpoint::share_of_blocks(layout, 0, 1);
    BOOST_TEST(checkpoint::pace_of(share).threads > 1);
    BOOST_TEST(checkpoint::pace_of(checkpoint::share_of_blocks(layout, 0, 2)).threads == 1);
    for (const std::uint64_t most : {std::uint64_t{0}, 6 * mebibyte, 16 * mebibyte}) {
        const auto to_write = checkpoint::stretches_to_write(layout, share, most),
                   to_read = checkpoint::stretches_to_read(layout, share, most);
        BOOST_TEST(to_read.size() <= to_write.size());
        if (most == 0) BOOST_TEST(to_read.size() == share.size());
        if (most == 16 * mebibyte) BOOST_TEST(to_write.size() < share.size() - 10);
        for (const auto& stretches : {to_write, to_read}) {
            std::size_t next = 0;
            for (const Stretch& stretch : stretches) {
                BOOST_TEST(stretch.first == next);
                next = stretch.last;
                BOOST_TEST((stretch.last == stretch.first + 1 || stretch.bytes <= most));
                BOOST_TEST(stretch.offset == checkpoint::offset_of(layout, share[stretch.first]));
                BOOST_TEST(stretch.offset + stretch.bytes ==
                           checkpoint::offset_of(layout, share[stretch.last - 1]) + share[stretch.last - 1].bytes);
            }
            BOOST_TEST(next == share.size());
        }
        for (const Stretch& stretch : to_write) {  // nothing else lies in it
            std::uint64_t bytes = 0;
            for (std::size_t i = stretch.first; i < stretch.last; ++i) bytes += share[i].bytes;
            BOOST_TEST(bytes == stretch.bytes);
        }
    }
}

// The values at begin are in the file although the tensors change as soon as they may: before anything is written, and
// while threads that are slow gather them.
BOOST_AUTO_TEST_CASE(values_left_in_place_are_not_torn) {
    const std::string folder = empty_test_folder("share_torn");
    const Tensors expected(odd_sizes());
    const InjectedFault fault("checkpoint_gather:*:*:slow");
    for (const Pace& pace : paces)
        for (const bool before_start : {true, false}) {
            Tensors changing(odd_sizes());
            Steps steps(in(folder, 1), changing.entries, CheckpointVerify::read, pace, Values::left_in_place);
            BOOST_TEST(steps.share().needs_tensors());
            BOOST_TEST(steps.share().copied_bytes() == 0u);
            if (!before_start) steps.share().start();
            steps.share().release();
            BOOST_TEST(!steps.share().needs_tensors());
            changing.fill(42);
            if (before_start) {
                BOOST_TEST(steps.share().copied_bytes() > 0u);
                steps.share().start();
            }
            steps.share().release();  // once more is nothing
            changing.fill(43);
            BOOST_TEST(steps.finish());
            Tensors read(odd_sizes());
            checkpoint::load(in(folder, 1), read.entries, *cluster::make_solo_group());
            BOOST_TEST((read == expected), pace.threads << " threads, " << pace.stretch_bytes << " bytes");
        }
}

BOOST_AUTO_TEST_CASE(no_more_than_the_bound_is_copied) {
    const std::string folder = empty_test_folder("share_bound");
    const std::vector<Tensors::Named> tensors = {{"parameters/large", {88, 1024, 1024}}};  // 352 MiB
    Tensors changing(tensors);
    Steps steps(in(folder, 1), changing.entries, CheckpointVerify::written, {3, 16 * mebibyte}, Values::left_in_place);
    std::thread releasing([&] {
        steps.share().release();
        changing.fill(42);
    });
    while (steps.share().copied_bytes() == 0) usleep(1000);
    BOOST_TEST(steps.share().needs_tensors());  // the rest is waited for
    BOOST_TEST(steps.share().copied_bytes() == checkpoint::most_kept_late);
    steps.share().start();
    releasing.join();
    BOOST_TEST(steps.finish());
    BOOST_TEST(steps.share().copied_bytes() == checkpoint::most_kept_late);
    const std::uint64_t bytes = 352 * mebibyte;
    BOOST_TEST(checkpoint::bytes_while_writing(bytes, Values::left_in_place) < bytes);
    BOOST_TEST(checkpoint::bytes_while_writing(bytes, Values::copied) == bytes);
    BOOST_TEST(checkpoint::bytes_while_writing(mebibyte, Values::left_in_place) == mebibyte);
    checkpoint::load(in(folder, 1), changing.entries, *cluster::make_solo_group());
    BOOST_TEST((changing == Tensors(tensors)));
    fs::remove_all(folder);
}

// Copies are taken where values are not fp32, and nothing of the others.
BOOST_AUTO_TEST_CASE(only_what_cannot_stay_is_copied) {
    const std::string folder = empty_test_folder("share_mixed");
    const Tensors tensors({{"parameters/a", {3000, 1024}}});
    std::vector<std::uint16_t> half(1024 * 1024, 0x3f80);  // bf16: 1
    auto entries = tensors.entries;
    entries.push_back(checkpoint::whole("parameters/b", Tensor(half.data(), Type::bf16, {1024, 1024}), nullptr));
    for (const auto& [values, copied] : {std::pair{Values::left_in_place, 4 * mebibyte},
                                         std::pair{Values::copied, 4 * mebibyte + std::uint64_t{3000} * 4096}}) {
        Steps steps(in(folder, 1), entries, CheckpointVerify::read, {2, 16 * mebibyte}, values);
        BOOST_TEST(steps.share().copied_bytes() == copied);
        steps.share().start();
        BOOST_TEST(steps.finish());
        Tensors read({{"parameters/a", {3000, 1024}}, {"parameters/b", {1024, 1024}}});
        checkpoint::load(in(folder, 1), read.entries, *cluster::make_solo_group());
        BOOST_TEST((read.entries[1].value.fp32()[777] == 1.0f));
        BOOST_TEST(std::equal(tensors.entries[0].value.fp32(), tensors.entries[0].value.fp32() + 3000 * 1024,
                              read.entries[0].value.fp32()));
    }
}

BOOST_AUTO_TEST_CASE(a_fault_of_one_of_several_threads_leaves_nothing) {
    const std::string folder = empty_test_folder("share_faults");
    Tensors tensors(large());
    for (const auto verify : {CheckpointVerify::read, CheckpointVerify::written})
        for (const char* action : {"checkpoint_write:*:*:enospc", "checkpoint_write:*:*:throw"}) {
            checkpoint::Writer writer(folder, 2, cluster::make_solo_group(), verify);
            const InjectedFault fault(action);
            BOOST_TEST(writer.begin(some_contents(1), tensors.entries, Values::left_in_place));
            writer.release();  // comes back
            tensors.fill(1);
            while (writer.progress() == checkpoint::Writer::Progress::writing) usleep(1000);
            BOOST_TEST((writer.progress() == checkpoint::Writer::Progress::failed));
            BOOST_TEST(!writer.commit());
            BOOST_TEST(fs::is_empty(folder));
        }
}

// What is read back is compared; what is only written is found damaged later, by its checksums.
BOOST_AUTO_TEST_CASE(damage_is_found_when_it_is_read) {
    const std::string folder = empty_test_folder("share_damage");
    for (const auto& tensors : {odd_sizes(), large()}) {
        const Tensors written(tensors);
        const InjectedFault fault("checkpoint_data:*:*:damage");
        BOOST_TEST(!checkpoint::Writer(folder, 2, cluster::make_solo_group(), CheckpointVerify::read)
                        .write_now(some_contents(1), written.entries));
        BOOST_TEST(fs::is_empty(folder));
        BOOST_TEST(checkpoint::Writer(folder, 2, cluster::make_solo_group(), CheckpointVerify::written)
                       .write_now(some_contents(1), written.entries));
        const auto damaged = [](const Error& error) { return error.code() == ExitCode::damaged; };
        BOOST_CHECK_EXCEPTION(checkpoint::verify(in(folder, 1)), Error, damaged);
        Tensors read(tensors);
        BOOST_CHECK_EXCEPTION(checkpoint::load(in(folder, 1), read.entries, *cluster::make_solo_group()), Error,
                              damaged);
        std::vector<std::string> skipped;
        BOOST_TEST(checkpoint::find_newest(folder, skipped).empty());
        BOOST_TEST(skipped.size() == 1u);
        fs::remove(in(folder, 1));
    }
}

BOOST_AUTO_TEST_CASE(blocks_are_read_ahead_and_verified) {
    const std::string folder = empty_test_folder("share_ahead"), path = in(folder, 1);
    const Tensors written(large());
    solo_writer(folder).write_now(some_contents(1), written.entries);
    const checkpoint::Layout layout = layout_of(path);
    const auto share = checkpoint::share_of_blocks(layout, 0, 1);
    const auto file = OpenFile::for_reading(path);
    std::vector<float> expected(layout.block_bytes / sizeof(float));
    for (const Pace& pace : paces) {
        checkpoint::ReadAhead reader(file, path, layout, share, pace);
        bool same = true;
        for (std::size_t i = 0; i < share.size(); ++i) {
            checkpoint::read_block(file, path, layout, share[i], expected.data());
            // Some blocks back are still there.
            reader.forget_before(i < 7 ? 0 : i - 7);
            same = same && std::memcmp(reader.block(i), expected.data(), share[i].bytes) == 0 &&
                   reader.block(i < 7 ? 0 : i - 7) != nullptr;
        }
        BOOST_TEST(same, pace.threads << " threads, " << pace.stretch_bytes << " bytes");
        // The last block, before any other is done with.
        checkpoint::ReadAhead backwards(file, path, layout, share, pace);
        BOOST_TEST(std::memcmp(backwards.block(share.size() - 1), expected.data(), share.back().bytes) == 0);
    }
    const auto bad = std::find_if(share.begin(), share.end(), [&](const auto& block) {
        return layout.places[block.place].path == "parameters/large" && block.index == 11;
    });
    flip_bit(path, checkpoint::offset_of(layout, *bad) + 1000, 3);
    for (const Pace& pace : paces) {
        checkpoint::ReadAhead reader(file, path, layout, share, pace);
        BOOST_CHECK_EXCEPTION(
            for (std::size_t i = 0; i < share.size(); ++i) {
                reader.forget_before(i);
                static_cast<void>(reader.block(i));
            },
            Error,
            [](const Error& error) {
                return error.code() == ExitCode::damaged &&
                       std::string(error.what()).find("/parameters/large") != std::string::npos;
            });
    }
}
