#define BOOST_TEST_MODULE checkpoint
#include <boost/test/unit_test.hpp>

#include "checkpoint_fixture.hpp"
#include "device/parallel.hpp"
#include "hdf5/hdf5.hpp"
#include "places.hpp"

using namespace lockstep;
using namespace lockstep::checkpoint_tests;
namespace fs = std::filesystem;

namespace {

auto sentence_has(const std::string& words, ExitCode code) {
    return [=](const Error& error) {
        BOOST_TEST_MESSAGE(error.what());
        return error.code() == code && std::string(error.what()).find(words) != std::string::npos;
    };
}

}  // namespace

BOOST_AUTO_TEST_CASE(what_is_written_is_read) {
    const std::string folder = empty_test_folder("round_trip");
    const Tensors written(odd_sizes());
    auto writer = solo_writer(folder);
    BOOST_TEST(writer.write_now(some_contents(100), written.entries));
    const std::string path = in(folder, 100);
    BOOST_TEST(path.ends_with("step-00000100.h5"));
    BOOST_TEST(same(checkpoint::read_contents(path), some_contents(100)));
    Tensors read(odd_sizes());
    read.fill(-1);
    const auto group = cluster::make_solo_group();
    checkpoint::load(path, read.entries, *group);
    BOOST_TEST((read == written));
    std::uint64_t bytes = some_contents(100).tokenizer_files.front().contents.size(), told = 0;
    for (const auto& entry : written.entries) bytes += entry.value.bytes();
    BOOST_TEST(checkpoint::verify(path, [&](std::uint64_t done, std::uint64_t) { told = done; }) == bytes);
    BOOST_TEST(told == bytes);
    BOOST_TEST(!fs::exists(path + ".tmp"));
}

BOOST_AUTO_TEST_CASE(tensors_are_listed_with_their_shapes) {
    const std::string folder = empty_test_folder("list");
    const Tensors written(few_small());
    solo_writer(folder).write_now(some_contents(1), written.entries);
    const auto tensors = checkpoint::list_tensors(in(folder, 1));
    BOOST_REQUIRE(tensors.size() == 3u);
    for (const auto& tensor : tensors)
        BOOST_TEST((std::any_of(written.entries.begin(), written.entries.end(), [&](const Entry& entry) {
            return entry.path == tensor.path && entry.value.shape() == tensor.shape;
        })));
}

BOOST_AUTO_TEST_CASE(state_of_any_optimizer_is_kept_in_the_second_version) {
    const std::string folder = empty_test_folder("optimizers");
    const std::vector<Tensors::Named> tensors = {{"parameters/a", {5, 3}}, {"optimizer/row scale/a", {5}}};
    auto writer = solo_writer(folder);
    for (const auto& [optimizer, version] : {std::pair{"adamw", 1}, std::pair{"row-scales", 2}}) {
        Contents contents = some_contents(version);
        contents.state.optimizer = optimizer;
        contents.tokenizer_kind = "bytes";
        contents.tokenizer_files.clear();
        BOOST_TEST(writer.write_now(contents, Tensors(tensors).entries));
        const std::string path = in(folder, version);
        BOOST_TEST(hdf5::File::open(path).read_integer("/", "format_version") == version);
        BOOST_TEST(same(checkpoint::read_contents(path), contents));
        Tensors read(tensors);
        read.fill(-1);
        const auto communicator = cluster::make_solo_group();
        checkpoint::load(path, read.entries, *communicator);
        BOOST_TEST((read == Tensors(tensors)));
        BOOST_TEST(checkpoint::verify(path) > 0);
    }
}

BOOST_AUTO_TEST_CASE(long_and_empty_texts_are_kept) {
    const std::string folder = empty_test_folder("long_text");
    const Tensors written(few_small());
    auto writer = solo_writer(folder);
    for (const std::size_t length : {0, 1, 65'000, 65'535, 65'536, 300'000}) {
        Contents contents = some_contents(static_cast<std::int64_t>(length));
        contents.run_description.assign(length, 'x');
        contents.tokenizer_kind.clear();
        contents.tokenizer_files.clear();
        contents.state.finished = false;
        BOOST_TEST(writer.write_now(contents, written.entries));
        BOOST_TEST(same(checkpoint::read_contents(in(folder, contents.state.step)), contents));
    }
}

BOOST_AUTO_TEST_CASE(files_of_a_tokenizer_of_none_one_and_several_blocks_are_kept) {
    const std::string folder = empty_test_folder("large_tokenizer");
    Contents contents = some_contents(1);
    contents.tokenizer_files = {{"added_tokens.json", ""},
                                {"tokenizer.json", std::string((std::size_t{9} << 20) + 5, 'm')},
                                {"tokenizer_config.json", "{}"}};
    solo_writer(folder).write_now(contents, Tensors(few_small()).entries);
    BOOST_TEST(same(checkpoint::read_contents(in(folder, 1)), contents));
    BOOST_TEST(hdf5::File::open(in(folder, 1)).read_integer("/", "format_version") == 2);
    BOOST_TEST(checkpoint::list_tensors(in(folder, 1)).size() == few_small().size());
    flip_bit(in(folder, 1), place_of(in(folder, 1), std::string(1000, 'm')) + (std::size_t{8} << 20), 0);
    BOOST_CHECK_EXCEPTION(checkpoint::read_contents(in(folder, 1)), Error,
                          sentence_has("tokenizer/tokenizer.json", ExitCode::damaged));
}

BOOST_AUTO_TEST_CASE(a_file_of_the_first_form_has_its_sentencepiece_model) {
    const std::string path = tests::source_path("tests/compatibility/sentencepiece.h5");
    const Contents contents = checkpoint::read_contents(path);
    BOOST_TEST(contents.tokenizer_kind == "sentencepiece");
    BOOST_TEST_REQUIRE(contents.tokenizer_files.size() == 1u);
    BOOST_TEST(contents.tokenizer_files.front().name == "tokenizer.model");
    BOOST_TEST(contents.tokenizer_files.front().contents == hdf5::File::open(path).read_text("tokenizer_model"));
    for (const auto& tensor : checkpoint::list_tensors(path)) BOOST_TEST(tensor.path != "tokenizer_model");
    BOOST_TEST(checkpoint::verify(path) > 0u);
}

BOOST_AUTO_TEST_CASE(equal_contents_make_equal_files) {
    const std::string folder = empty_test_folder("equal");
    const Tensors written(odd_sizes());
    solo_writer(folder + "/a").write_now(some_contents(3), written.entries);
    solo_writer(folder + "/b").write_now(some_contents(3), written.entries);
    BOOST_TEST((bytes_of(in(folder + "/a", 3)) == bytes_of(in(folder + "/b", 3))));
}

BOOST_AUTO_TEST_CASE(the_file_holds_what_was_there_at_begin) {
    const std::string folder = empty_test_folder("beside");
    Tensors changing(odd_sizes());
    auto writer = solo_writer(folder);
    BOOST_TEST((writer.progress() == checkpoint::Writer::Progress::idle));
    BOOST_TEST(writer.begin(some_contents(5), changing.entries));
    changing.fill(42);
    while (writer.progress() == checkpoint::Writer::Progress::writing) changing.fill(43);
    BOOST_TEST((writer.progress() == checkpoint::Writer::Progress::written));
    BOOST_TEST(!fs::exists(in(folder, 5)));
    BOOST_TEST(writer.commit());
    BOOST_TEST((writer.progress() == checkpoint::Writer::Progress::idle));
    const auto group = cluster::make_solo_group();
    checkpoint::load(in(folder, 5), changing.entries, *group);
    BOOST_TEST((changing == Tensors(odd_sizes())));
}

BOOST_AUTO_TEST_CASE(a_second_begin_commits_the_first) {
    const std::string folder = empty_test_folder("second_begin");
    const Tensors written(few_small());
    auto writer = solo_writer(folder);
    BOOST_TEST(writer.begin(some_contents(1), written.entries));
    BOOST_TEST(writer.begin(some_contents(2), written.entries));
    BOOST_TEST(fs::exists(in(folder, 1)));
    BOOST_TEST(writer.finish());
    BOOST_TEST(writer.finish());
    BOOST_TEST(fs::exists(in(folder, 2)));
    BOOST_TEST(!writer.commit());
}

BOOST_AUTO_TEST_CASE(a_writer_that_goes_away_leaves_nothing_unfinished) {
    const std::string folder = empty_test_folder("goes_away");
    const Tensors written(odd_sizes());
    {
        auto writer = solo_writer(folder);
        BOOST_TEST(writer.begin(some_contents(1), written.entries));
        BOOST_TEST(fs::exists(in(folder, 1) + ".tmp"));
    }
    BOOST_TEST(fs::is_empty(folder));
}

BOOST_AUTO_TEST_CASE(the_newest_are_kept) {
    const std::string folder = empty_test_folder("retention");
    const Tensors written(few_small());
    const auto steps_after = [&](std::int64_t keep, std::vector<std::int64_t> steps) {
        auto writer = solo_writer(folder, keep);
        for (const auto step : steps) BOOST_TEST(writer.write_now(some_contents(step), written.entries));
        std::vector<std::string> names;
        for (const auto& path : checkpoint::list_checkpoints(folder))
            names.push_back(fs::path(path).filename().string());
        return names;
    };
    using Names = std::vector<std::string>;
    BOOST_TEST(steps_after(3, {10, 20, 30, 40}) == (Names{"step-00000020.h5", "step-00000030.h5", "step-00000040.h5"}));
    // One is too few to survive a damaged newest.
    BOOST_TEST(steps_after(1, {50}) == (Names{"step-00000040.h5", "step-00000050.h5"}));
    // Resumed from before the newest: what lies ahead stays.
    BOOST_TEST(steps_after(2, {45}) == (Names{"step-00000040.h5", "step-00000045.h5", "step-00000050.h5"}));
    BOOST_TEST(steps_after(2, {123456789}) == (Names{"step-00000050.h5", "step-123456789.h5"}));
    BOOST_TEST(steps_after(2, {123456789}) == (Names{"step-00000050.h5", "step-123456789.h5"}));
}

BOOST_AUTO_TEST_CASE(left_overs_go_and_foreign_files_stay) {
    const std::string folder = empty_test_folder("left_overs");
    for (const std::string name :
         {"step-00000007.h5.tmp", "notes.tmp", "step-7.h5", "step-00000008.h5.bak", "step-.h5"})
        write_bytes(folder + "/" + name, "x");
    fs::create_directory(folder + "/more");
    auto writer = solo_writer(folder);
    BOOST_TEST(!fs::exists(folder + "/step-00000007.h5.tmp"));
    BOOST_TEST(fs::exists(folder + "/notes.tmp"));
    BOOST_TEST(fs::exists(folder + "/step-7.h5"));
    BOOST_TEST(checkpoint::list_checkpoints(folder).empty());
    std::vector<std::string> skipped;
    BOOST_TEST(checkpoint::find_newest(folder, skipped) == "");
    BOOST_TEST(skipped.empty());
    BOOST_TEST(checkpoint::find_newest(folder + "/none", skipped) == "");
}

BOOST_AUTO_TEST_CASE(the_newest_whole_one_is_found) {
    const std::string folder = empty_test_folder("newest");
    const Tensors written(few_small());
    auto writer = solo_writer(folder, 4);
    for (const int step : {1, 2, 3, 4}) BOOST_TEST(writer.write_now(some_contents(step), written.entries));
    write_bytes(in(folder, 4), bytes_of(in(folder, 4)).substr(0, 3000));
    const std::string first_tensor(static_cast<const char*>(written.entries[0].value.data()), 60);
    flip_bit(in(folder, 3), place_of(in(folder, 3), first_tensor) + 17, 4);
    std::vector<std::string> skipped;
    BOOST_TEST(checkpoint::find_newest(folder, skipped) == in(folder, 2));
    BOOST_REQUIRE(skipped.size() == 2u);
    BOOST_TEST(skipped[0].find("step-00000004.h5") != std::string::npos);
    BOOST_TEST(skipped[1].find("parameters/a/weight") != std::string::npos);
}

BOOST_AUTO_TEST_CASE(a_checkpoint_of_another_model_is_named_as_one) {
    const std::string folder = empty_test_folder("another_model");
    const Tensors written(few_small());
    solo_writer(folder).write_now(some_contents(1), written.entries);
    const auto group = cluster::make_solo_group();
    const auto load = [&](std::vector<Tensors::Named> tensors) {
        checkpoint::load(in(folder, 1), Tensors(tensors).entries, *group);
    };
    load({{"parameters/a/weight", {5, 3}}, {"parameters/b", {1}}});  // only a part: no moments
    const auto usage = [](const std::string& words) { return sentence_has(words, ExitCode::usage); };
    BOOST_CHECK_EXCEPTION(load({{"parameters/a/weight", {3, 5}}, {"parameters/b", {1}}}), Error,
                          usage("[5, 3] there and [3, 5]"));
    BOOST_CHECK_EXCEPTION(load({{"parameters/a/weight", {5, 3}}}), Error, usage("parameters/b"));
    BOOST_CHECK_EXCEPTION(load({{"parameters/a/weight", {5, 3}}, {"parameters/b", {1}}, {"parameters/c", {1}}}), Error,
                          usage("does not hold parameters/c"));
}

BOOST_AUTO_TEST_CASE(what_is_no_checkpoint_says_so) {
    const std::string folder = empty_test_folder("no_checkpoint");
    const auto check = [&](const std::string& name, const std::string& words, ExitCode code) {
        BOOST_CHECK_EXCEPTION(checkpoint::verify(folder + "/" + name), Error, sentence_has(words, code));
        BOOST_CHECK_EXCEPTION(checkpoint::read_contents(folder + "/" + name), Error, sentence_has(words, code));
    };
    write_bytes(folder + "/empty.h5", "");
    write_bytes(folder + "/text.h5", std::string(10000, 't'));
    {
        auto file = hdf5::File::create(folder + "/foreign.h5");
        file.create_dataset("x", hdf5::ElementType::fp32, {3});
        file.close();
        auto tokens = hdf5::File::create(folder + "/tokens.h5");
        tokens.write_attribute("/", "format", "lockstep-tokens");
        tokens.close();
        auto newer = hdf5::File::create(folder + "/newer.h5");
        newer.write_attribute("/", "format", "lockstep-checkpoint");
        newer.write_attribute("/", "format_version", std::int64_t{4});
        newer.write_attribute("/", "program_version", "7.8.9");
        newer.close();
    }
    check("none.h5", "does not exist", ExitCode::usage);
    check(".", "is not a file", ExitCode::usage);
    check("empty.h5", "is empty", ExitCode::damaged);
    check("text.h5", "is damaged or of another format", ExitCode::damaged);
    check("foreign.h5", "not a checkpoint", ExitCode::usage);
    check("tokens.h5", "'lockstep-tokens'", ExitCode::usage);
    check("newer.h5", "written by lockstep 7.8.9", ExitCode::usage);
}
