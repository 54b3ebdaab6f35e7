#include "data/pack.hpp"

#include <fmt/format.h>

#include <array>
#include <filesystem>
#include <memory>
#include <string_view>

#include "base/command_line.hpp"
#include "base/error.hpp"
#include "base/format.hpp"
#include "base/hash.hpp"
#include "base/table.hpp"
#include "command.hpp"
#include "config/words.hpp"
#include "data/token_file.hpp"
#include "hdf5/hdf5.hpp"
#include "train/initial_model.hpp"
#include "train/kept_tokenizer.hpp"

namespace lockstep::config {
template <>
inline constexpr auto words_in<data::PackFormat> = std::to_array<std::string_view>({"lockstep", "megatron"});
}  // namespace lockstep::config

namespace lockstep::commands {
namespace {

struct Options {
    data::PackOptions pack;
    std::string to = "lockstep", format = "text";
};

// One record: rows of name and value for text and markdown; one object or line for JSON and CSV.
std::string print_record(const Table& record, TableFormat format) {
    if (format == TableFormat::csv) return record.print(format);
    if (format == TableFormat::json) return record.print_object();
    Table rows({{"quantity", "quantity"}, {"value", "value"}});
    for (std::size_t i = 0; i < record.columns().size(); ++i) {
        const Cell& cell = record.rows().front()[i];
        std::string value;
        if (const auto* whole = std::get_if<std::int64_t>(&cell))
            value = with_commas(*whole);
        else if (const auto* number = std::get_if<double>(&cell))
            value = fmt::format("{:.4f}", *number);
        else if (const auto* words = std::get_if<std::string>(&cell))
            value = *words;
        rows.add_row({record.columns()[i].title, value});
    }
    return rows.print(format);
}

namespace fs = std::filesystem;

bool has_tokenizer(const fs::path& folder) {
    std::error_code ignored;
    return fs::exists(folder / "tokenizer.json", ignored) ||
           fs::exists(folder / data::sentencepiece_file_name, ignored);
}

// The tokenizer kept in a checkpoint, or in the newest of a run's folder; null: `name` is none of these.
std::shared_ptr<const data::Tokenizer> tokenizer_of_checkpoint(const std::string& name) {
    std::error_code ignored;
    if (name == "bytes") return nullptr;
    if (fs::is_directory(name, ignored)) {
        if (has_tokenizer(name)) return nullptr;
        if (!exchange::is_folder(name) && train::checkpoint_folder_of(name) == name &&
            checkpoint::list_checkpoints(name).empty())
            throw usage_error("the folder {} has neither a tokenizer (tokenizer.json or {}) nor checkpoints", name,
                              data::sentencepiece_file_name);
    } else if (!fs::is_regular_file(name, ignored) || !hdf5::has_signature(name) || data::is_token_file(name)) {
        return nullptr;
    }
    const std::string checkpoint = train::newest_checkpoint(name);
    return train::kept_tokenizer(exchange::StoredModel(checkpoint).contents(), checkpoint, "; name another");
}

int run(Options options, bool tokenizer_given) {
    const TableFormat format = table_format(options.format);
    if (tokenizer_given && options.pack.train_tokenizer != 0)
        throw usage_error("--tokenizer and --train-tokenizer are mutually exclusive; give one");
    options.pack.format = config::from_word<data::PackFormat>(options.to, "--to");
    if (tokenizer_given) options.pack.kept_tokenizer = tokenizer_of_checkpoint(options.pack.tokenizer);
    const data::PackResult result = data::pack(options.pack);
    Table record({{"files", "text files"},
                  {"skipped_files", "files skipped (empty or not text)"},
                  {"documents", "documents"},
                  {"empty_documents", "documents skipped (empty)"},
                  {"bytes", "bytes of text"},
                  {"tokens", "tokens"},
                  {"vocabulary", "vocabulary"},
                  {"byte_entropy", "entropy per byte, nats", 4},
                  {"conditional_entropy", "entropy per byte given the previous, nats", 4},
                  {"checksum", "checksum"},
                  {"out", "token file"}});
    const bool is_pair = options.pack.format == data::PackFormat::megatron;
    record.add_row({result.files, result.skipped_files, result.documents, result.empty_documents, result.bytes,
                    result.tokens, result.vocabulary, result.byte_entropy, result.conditional_entropy,
                    hash_text(result.checksum), options.pack.out + (is_pair ? ".bin" : "")});
    print_result(print_record(record, format));
    return 0;
}

}  // namespace

void add_pack(CLI::App& program, Action& action) {
    auto options = std::make_shared<Options>();
    CLI::App* command = program.add_subcommand("pack", "Turn text and JSON Lines into a token file");
    command->footer(
        "A folder means all text files below it, in byte order of their paths; hidden files, empty files and files "
        "with a\n"
        "NUL byte in their first 64 KiB are skipped. In .jsonl and .ndjson files, compressed (.gz, .zst) or not, in "
        ".json.gz and .json.zst\n"
        "files, and in a .json file named directly, every line is a document. Documents are separated by one boundary "
        "token.\n"
        "--to megatron writes OUT.bin and OUT.idx for Megatron-LM; every document ends in the boundary token.\n"
        "Examples: lockstep pack --out tokens.h5 --train-tokenizer 8000 books/ notes.txt\n"
        "          lockstep pack --out corpus --to megatron --tokenizer llama.model part-*.jsonl.zst");
    command->add_option("PATHS", options->pack.paths, "Text files and folders")->required()->type_name("PATH");
    command
        ->add_option(
            "--out", options->pack.out,
            "Token file to write (HDF5), or the prefix of Megatron-LM's two files; existing ones are replaced on "
            "success")
        ->required()
        ->type_name("FILE");
    command->add_option("--to", options->to, "lockstep (the default) or megatron")->type_name("FORMAT");
    command->add_option("--jsonl-field", options->pack.jsonl_field, "JSON Lines field that holds the text")
        ->capture_default_str()
        ->type_name("NAME");
    CLI::Option* tokenizer =
        command
            ->add_option("--tokenizer", options->pack.tokenizer,
                         "\"bytes\" (the default), a sentencepiece .model file, a tokenizer.json, a folder with "
                         "either, or a token file or checkpoint whose tokenizer to use")
            ->type_name("bytes|FILE");
    command
        ->add_option("--train-tokenizer", options->pack.train_tokenizer,
                     "First train a sentencepiece model of N pieces on the text; stored in the token file")
        ->type_name("N")
        ->check(above_zero());
    command->add_option("--format", options->format, "text, markdown, csv or json")
        ->capture_default_str()
        ->type_name("FORMAT");
    command->callback([options, tokenizer, &action] {
        const bool given = tokenizer->count() > 0;
        action = [options, given] { return run(*options, given); };
    });
}

}  // namespace lockstep::commands
