// Conversions by several ranks: there and back bit for bit, whatever their number; what fails leaves nothing behind.
#define BOOST_TEST_MODULE convert
#define BOOST_TEST_NO_MAIN
#include "exchange/convert.hpp"

#include <cstring>
#include <map>

#include "cluster/agree.hpp"
#include "cluster/session.hpp"
#include "exchange/folder.hpp"
#include "places.hpp"
#include "unit/exchange/files.hpp"

using namespace lockstep;
using namespace lockstep::tests;

namespace {

cluster::HostGroup* world = nullptr;

// A folder of all ranks.
class SharedFolder {
  public:
    SharedFolder() {
        std::string name;
        cluster::on_root(*world, [&] {
            own_.emplace();
            name = own_->path().string();
        });
        path_ = world->broadcast_text(name, 0);
    }
    ~SharedFolder() { world->barrier(); }
    std::string operator/(const std::string& name) const { return path_ + "/" + name; }

  private:
    std::optional<TemporaryFolder> own_;
    std::string path_;
};

std::vector<std::string> cases() {
    std::vector<std::string> folders;
    for (const auto& entry : fs::directory_iterator(source_path("tests/hugging_face")))
        if (exchange::is_folder(entry.path().string())) folders.push_back(entry.path().string());
    std::sort(folders.begin(), folders.end());
    return folders;
}

// Our parameters of a folder.
std::map<std::string, std::vector<float>> parameters_of(const std::string& path) {
    const exchange::Folder folder(path);
    std::map<std::string, std::vector<float>> values;
    for (const auto& names : folder.names()) {
        auto& of_one = values[names.ours];
        of_one.resize(static_cast<std::size_t>(element_count(names.shape)));
        folder.source()("parameters/" + names.ours, 0, element_count(names.shape), of_one.data());
    }
    return values;
}

// Theirs, byte by byte.
std::map<std::string, std::string> tensors_of(const std::string& path) {
    const exchange::TensorFiles files(path);
    std::map<std::string, std::string> tensors;
    for (const auto& [name, place] : files.places())
        tensors[name] = {reinterpret_cast<const char*>(place.file->data(*place.tensor)), place.tensor->bytes};
    return tensors;
}

std::size_t count_files(const std::string& path, const std::string& ending) {
    std::size_t count = 0;
    for (const auto& entry : fs::directory_iterator(path)) count += entry.path().string().ends_with(ending);
    return count;
}

}  // namespace

BOOST_AUTO_TEST_CASE(there_and_back_is_bit_for_bit) {
    for (const std::string& origin : cases()) BOOST_TEST_CONTEXT(origin) {
            const SharedFolder place;
            const std::string checkpoint = place / "model.h5";
            exchange::folder_to_checkpoint(origin, checkpoint, *world);
            exchange::checkpoint_to_folder(checkpoint, place / "back", {}, *world);
            exchange::WayOut sharded;
            sharded.shard_bytes = 9000;
            exchange::checkpoint_to_folder(checkpoint, place / "sharded/", sharded, *world);
            exchange::WayOut half;
            half.type = Type::bf16;
            exchange::checkpoint_to_folder(checkpoint, place / "half", half, *world);
            exchange::folder_to_checkpoint(place / "sharded", place / "again.h5", *world);
            exchange::checkpoint_to_folder(place / "again.h5", place / "again", {}, *world);
            exchange::folder_to_checkpoint(place / "half", place / "half.h5", *world);
            exchange::checkpoint_to_folder(place / "half.h5", place / "half-again", half, *world);
            if (world->rank() == 0) {
                const auto tensors = tensors_of(origin);
                BOOST_TEST((tensors_of(place / "back") == tensors));
                BOOST_TEST((tensors_of(place / "sharded") == tensors));
                BOOST_TEST(count_files(place / "back", ".safetensors") == 1u);
                BOOST_TEST(count_files(place / "sharded", ".safetensors") > 1u);
                BOOST_TEST(count_files(place / "sharded", ".index.json") == 1u);
                BOOST_TEST((tensors_of(place / "again") == tensors));
                BOOST_TEST((tensors_of(place / "half") == tensors_of(place / "half-again")));
                BOOST_TEST((tensors_of(place / "half") != tensors));
                BOOST_TEST((parameters_of(place / "back") == parameters_of(origin)));
                BOOST_TEST((exchange::Folder(place / "back").model() == exchange::Folder(origin).model()));
                BOOST_TEST(checkpoint::verify(checkpoint) > 0u);
                const checkpoint::Contents contents = checkpoint::read_contents(checkpoint);
                BOOST_TEST(contents.state.step == 0);
                for (const auto& tensor : checkpoint::list_tensors(checkpoint))
                    BOOST_TEST(tensor.path.starts_with("parameters/"));
            }
            world->barrier();
        }
}

BOOST_AUTO_TEST_CASE(slices_are_filled_from_a_folder) {
    for (const std::string& origin : cases()) BOOST_TEST_CONTEXT(origin) {
            const exchange::Folder folder(origin);
            const auto whole = parameters_of(origin);
            const std::int64_t ranks = world->size(), rank = world->rank();
            for (const auto& names : folder.names()) {
                const Shape& shape = names.shape;
                for (const int axis : {0, 1}) {
                    if (axis >= static_cast<int>(shape.size())) continue;
                    const auto length = shape[static_cast<std::size_t>(axis)];
                    checkpoint::Entry entry;
                    entry.path = "parameters/" + names.ours;
                    entry.shape = shape;
                    entry.axis = axis;
                    entry.offset = length * rank / ranks;
                    entry.extent = length * (rank + 1) / ranks - entry.offset;
                    const std::int64_t count = element_count(shape) / length * entry.extent;
                    if (count == 0) continue;
                    std::vector<float> values(static_cast<std::size_t>(count));
                    entry.value = Tensor(values.data(), Type::fp32, {count});
                    checkpoint::fill({entry}, folder.source());
                    const std::vector<float>& all = whole.at(names.ours);
                    const std::int64_t inner = element_count(shape) / (axis == 0 ? shape[0] : shape[0] * shape[1]);
                    const std::int64_t width = entry.extent * inner, row = length * inner;
                    for (std::int64_t i = 0; i < count; ++i) {
                        const std::int64_t at = i / width * row + entry.offset * inner + i % width;
                        BOOST_TEST_REQUIRE(values[static_cast<std::size_t>(i)] == all[static_cast<std::size_t>(at)]);
                    }
                }
            }
        }
}

BOOST_AUTO_TEST_CASE(the_files_of_a_tokenizer_come_back_byte_for_byte) {
    const SharedFolder place;
    const std::string origin = place / "origin";
    const std::map<std::string, std::string> kept = {{"tokenizer.json", std::string("{\"a\":\0\"b\"}", 10)},
                                                     {"tokenizer_config.json", "{}\r\n"},
                                                     {"generation_config.json", R"({"eos_token_id":[5,6],"x":1})"},
                                                     {"merges.txt", "a b\n"}};
    cluster::on_root(*world, [&] {
        fs::copy(cases().front(), origin);
        for (const auto& [name, contents] : kept) write_bytes(origin + "/" + name, contents);
        write_bytes(origin + "/README.md", "not kept");
    });
    exchange::folder_to_checkpoint(origin, place / "model.h5", *world);
    exchange::checkpoint_to_folder(place / "model.h5", place / "back", {}, *world);
    if (world->rank() != 0) return;
    BOOST_TEST(checkpoint::read_contents(place / "model.h5").tokenizer_kind == "huggingface");
    for (const auto& [name, contents] : kept) BOOST_TEST(read_bytes(place / "back/" + name) == contents, name);
    BOOST_TEST(!fs::exists(place / "back/README.md"));
    const exchange::Json config = exchange::read_json_object(place / "back/config.json", 1 << 20);
    BOOST_TEST(config["eos_token_id"].dump() == "[5,6]");
    BOOST_TEST(config["bos_token_id"].is_null());
}

BOOST_AUTO_TEST_CASE(what_exists_is_not_replaced_and_failures_leave_nothing) {
    const SharedFolder place;
    const std::string origin = cases().front(), checkpoint = place / "model.h5";
    const auto refused = [&](const std::function<void()>& work, ExitCode code, const std::string& part) {
        check_error(work, code, part);
        world->barrier();
    };
    exchange::folder_to_checkpoint(origin, checkpoint, *world);
    refused([&] { exchange::folder_to_checkpoint(origin, checkpoint, *world); }, ExitCode::usage, "exists");
    exchange::checkpoint_to_folder(checkpoint, place / "back", {}, *world);
    refused([&] { exchange::checkpoint_to_folder(checkpoint, place / "back", {}, *world); }, ExitCode::usage, "exists");
    refused([&] { exchange::checkpoint_to_folder(checkpoint, checkpoint, {}, *world); }, ExitCode::usage, "exists");
    cluster::on_root(*world, [&] { fs::create_directories(place / "empty"); });
    exchange::checkpoint_to_folder(checkpoint, place / "empty", {}, *world);
    // Damage in a tensor, which is found while the folder is being written.
    cluster::on_root(*world, [&] {
        std::string bytes = read_bytes(checkpoint);
        const exchange::Folder folder(origin);
        const auto values = parameters_of(origin).at(folder.names().front().ours);
        const std::string needle(reinterpret_cast<const char*>(values.data()), 64);
        const std::size_t at = bytes.find(needle);
        BOOST_TEST_REQUIRE(at != std::string::npos);
        bytes[at] = static_cast<char>(bytes[at] ^ 1);
        write_bytes(place / "damaged.h5", bytes);
        fs::copy(origin, place / "short");
        fs::resize_file(place / "short/model.safetensors", fs::file_size(place / "short/model.safetensors") - 4);
    });
    refused([&] { exchange::checkpoint_to_folder(place / "damaged.h5", place / "out", {}, *world); }, ExitCode::damaged,
            "checksum");
    refused([&] { exchange::folder_to_checkpoint(place / "short", place / "out.h5", *world); }, ExitCode::damaged,
            "cut short");
    if (world->rank() == 0)
        for (const char* name : {"out", "out.tmp", "out.h5", "out.h5.tmp"}) BOOST_TEST(!fs::exists(place / name), name);
}

BOOST_AUTO_TEST_CASE(names_that_cannot_be_made_are_refused_before_anything_is_written) {
    const SharedFolder place;
    const std::string origin = cases().front(), checkpoint = place / "model.h5";
    const auto refused = [&](const std::function<void()>& work, const std::string& part) {
        check_error(work, ExitCode::usage, part);
        world->barrier();
    };
    const auto in = [&](const std::string& name) { exchange::folder_to_checkpoint(origin, place / name, *world); };
    const auto out = [&](const std::string& name) {
        exchange::checkpoint_to_folder(checkpoint, place / name, {}, *world);
    };
    in("model.h5");
    refused([&] { in("new/"); }, "new/: a checkpoint is a file");
    cluster::on_root(*world, [&] { write_bytes(place / "file", "of the user"); });
    refused([&] { in("file/new.h5"); }, "cannot be created");
    refused([&] { out("file/new"); }, "cannot be created");
    // What another conversion is writing, or the user's own.
    cluster::on_root(*world, [&] {
        write_bytes(place / "new.tmp", "of the user");
        write_bytes(place / "new.h5.tmp", "of the user");
    });
    refused([&] { in("new.h5"); }, "new.h5.tmp exists: another conversion");
    refused([&] { out("new"); }, "new.tmp exists: another conversion");
    if (world->rank() != 0) return;
    for (const char* name : {"file", "new.tmp", "new.h5.tmp"}) BOOST_TEST(read_bytes(place / name) == "of the user");
    for (const char* name : {"new", "new.h5"}) BOOST_TEST(!fs::exists(place / name), name);
}

BOOST_AUTO_TEST_CASE(a_folder_of_any_name_gives_a_run_a_name) {
    const SharedFolder place;
    const std::string odd = place / "Mod\xFF\n \"el\" 2";
    cluster::on_root(*world, [&] { fs::copy(cases().front(), odd); });
    const exchange::Converted in = exchange::folder_to_checkpoint(odd, place / "odd.h5", *world);
    const exchange::Converted out = exchange::checkpoint_to_folder(place / "odd.h5", place / "back", {}, *world);
    BOOST_TEST(in.architecture == "GPT2LMHeadModel");
    BOOST_TEST(out.architecture == in.architecture);
    BOOST_TEST(in.tokenizer_kind == "");
    const std::string description = checkpoint::read_contents(place / "odd.h5").run_description;
    BOOST_TEST((description.find("name = \"Model2\"\n") != std::string::npos), description);
}

int main(int argc, char** argv) {
    cluster::Session session(&argc, &argv);
    const auto group = session.make_world_group();
    world = group.get();
    return session.run([&] { return boost::unit_test::unit_test_main([] { return true; }, argc, argv); });
}
