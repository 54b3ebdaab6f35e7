#include "data/token_file.hpp"

#include <algorithm>
#include <cstring>
#include <filesystem>

#include "base/error.hpp"
#include "base/hash.hpp"
#include "base/open_file.hpp"
#include "hdf5/hdf5.hpp"

namespace lockstep::data {
namespace {

void check_readable(const std::string& path) {
    std::error_code problem;
    if (!std::filesystem::exists(path, problem)) throw usage_error("{} does not exist", path);
    if (!std::filesystem::is_regular_file(path, problem)) throw usage_error("{} is not a file", path);
}

std::uint64_t parse_hash(const std::string& text, const std::string& path, const char* name) {
    std::size_t read = 0;
    try {
        const std::uint64_t value = std::stoull(text, &read, 16);
        if (read == 16 && text.size() == 16) return value;
    } catch (const std::exception&) {
        // reported below
    }
    throw damaged_error("{}: the attribute {} is '{}', not 16 hexadecimal digits", path, name, text);
}

TokenizerFiles read_tokenizer_files(const hdf5::File& file) {
    TokenizerFiles files;
    for (const auto& path : tokenizer_file_paths(file)) {
        const bool of_old_form = file.has_attribute("/", "tokenizer_model_checksum");
        const std::string expected =
            of_old_form ? file.read_string("/", "tokenizer_model_checksum") : file.read_string(path, "checksum");
        const TokenizerFile& one = files.emplace_back(TokenizerFile{tokenizer_file_name(path), file.read_text(path)});
        const std::string found = hash_text(hash64(one.contents.data(), one.contents.size()));
        if (found != expected)
            throw damaged_error("{}: the tokenizer's file /{} has checksum {}, expected {}", file.path(), path, found,
                                expected);
    }
    return files;
}

std::size_t width_of(const hdf5::DatasetInfo& about, const std::string& path) {
    if (about.type_name == "uint8") return 1;
    if (about.type_name == "uint16") return 2;
    if (about.type_name == "uint32") return 4;
    throw damaged_error("{}: /tokens has type {}, not uint8, uint16 or uint32", path, about.type_name);
}

// 0: the file has none.
std::int64_t count_document_ends(const hdf5::File& file, const TokenFileInfo& info) {
    if (!file.exists(document_ends_path)) return 0;
    const hdf5::DatasetInfo about = file.info(document_ends_path);
    const std::int64_t most = std::min(info.token_count, info.document_count);
    if (about.type_name != "int64" || about.dimensions.size() != 1 || about.dimensions[0] == 0 ||
        about.dimensions[0] > static_cast<std::uint64_t>(std::max<std::int64_t>(most, 0)))
        throw damaged_error("{}: /{} is not a row of 1 to {} int64", info.path, document_ends_path, most);
    return static_cast<std::int64_t>(about.dimensions[0]);
}

}  // namespace

bool is_token_file(const std::string& path) {
    check_readable(path);
    if (!hdf5::has_signature(path)) return false;
    const hdf5::File file = hdf5::File::open(path);
    return file.has_attribute("/", "format") && file.read_string("/", "format") == "lockstep-tokens";
}

TokenFileInfo read_token_file_info(const std::string& path) {
    check_readable(path);
    const std::uint64_t file_bytes = std::filesystem::file_size(path);
    if (!hdf5::has_signature(path))
        throw damaged_error("{} is not a token file, or its beginning is damaged; make token files with lockstep pack",
                            path);
    const hdf5::File file = hdf5::File::open(path);
    const std::string format =
        file.has_attribute("/", "format") ? file.read_string("/", "format") : "unknown HDF5 data";
    if (format != "lockstep-tokens")
        throw usage_error("{} holds {}, not tokens; make token files with lockstep pack", path, format);
    const std::int64_t version = file.read_integer("/", "format_version");
    if (version > newest_token_file_version)
        throw usage_error("{} is a token file of version {}; this program reads up to {}: use a newer lockstep", path,
                          version, newest_token_file_version);

    TokenFileInfo info;
    info.path = path;
    info.program_version = file.read_string("/", "program_version");
    info.tokenizer_kind = file.read_string("/", "tokenizer_kind");
    info.vocabulary = file.read_integer("/", "vocabulary");
    info.token_count = file.read_integer("/", "token_count");
    info.document_count = file.read_integer("/", "document_count");
    info.byte_count = file.read_integer("/", "byte_count");
    info.byte_entropy = file.read_number("/", "byte_entropy");
    info.conditional_entropy = file.read_number("/", "conditional_entropy");
    info.checksum = parse_hash(file.read_string("/", "checksum"), path, "checksum");
    info.tokenizer_files = read_tokenizer_files(file);
    if (info.tokenizer_files.empty() && info.tokenizer_kind != "bytes")
        throw damaged_error("{} is damaged: the files of its tokenizer ({}) are missing", path, info.tokenizer_kind);
    const hdf5::DatasetInfo about = file.info("tokens");
    info.token_width = width_of(about, path);
    info.offset = about.offset;
    if (about.dimensions.size() != 1 || about.dimensions[0] != static_cast<std::uint64_t>(info.token_count) ||
        info.token_count <= 0 || !about.contiguous || about.offset == 0)
        throw damaged_error("{}: /tokens is not a contiguous row of {} tokens", path, info.token_count);
    if (info.vocabulary <= 0 || info.vocabulary > std::int64_t{1} << 31)
        throw damaged_error("{}: invalid vocabulary {}", path, info.vocabulary);
    if (!info.fits_into(file_bytes))
        throw damaged_error("{} is truncated: it has {} bytes, too few for {} tokens of {} from byte {} on", path,
                            file_bytes, info.token_count, info.token_width, info.offset);
    info.document_end_count = count_document_ends(file, info);
    return info;
}

std::vector<std::int64_t> read_document_ends(const TokenFileInfo& info) {
    if (info.document_end_count == 0)
        throw usage_error(
            "{} has no document boundaries: an older lockstep packed it; pack it again, or read it with documents joined",
            info.path);
    const hdf5::File file = hdf5::File::open(info.path);
    std::vector<std::int64_t> ends(static_cast<std::size_t>(info.document_end_count));
    // Counted again: the file may have been replaced meanwhile.
    if (count_document_ends(file, info) != info.document_end_count)
        throw damaged_error("{} changed while being opened", info.path);
    file.read(document_ends_path, ends.data());
    const std::string expected = file.read_string(document_ends_path, "checksum"),
                      found = hash_text(hash64(ends.data(), ends.size() * sizeof ends[0]));
    if (found != expected)
        throw damaged_error("{} is damaged: /{} has checksum {}, expected {}; pack it again", info.path,
                            document_ends_path, found, expected);
    std::int64_t before = 0;
    for (const std::int64_t end : ends) {
        if (end <= before)
            throw damaged_error(
                "{} is damaged: a document ends at token {}, but the one before it at {}; pack it again", info.path,
                end, before);
        before = end;
    }
    if (before != info.token_count)
        throw damaged_error("{} is damaged: its last document ends at token {} of {}; pack it again", info.path, before,
                            info.token_count);
    return ends;
}

TokenFile::TokenFile(const std::string& path) : info_(read_token_file_info(path)), file_(path) {
    // Checked again: the file may have been replaced meanwhile.
    if (!info_.fits_into(file_.bytes())) throw damaged_error("{} changed while being opened", path);
}

std::uint64_t verify_token_file(const std::string& path) {
    const TokenFile file(path);
    const TokenFileInfo& info = file.info();
    const std::uint64_t found = hash64(file.tokens(), info.token_bytes());
    if (found != info.checksum)
        throw damaged_error("{} is damaged: its tokens have checksum {}, expected {}; pack it again", path,
                            hash_text(found), hash_text(info.checksum));
    std::uint64_t bytes = info.token_bytes();
    if (info.document_end_count > 0) bytes += read_document_ends(info).size() * sizeof(std::int64_t);
    for (const auto& one : info.tokenizer_files) bytes += one.contents.size();
    return bytes;
}

}  // namespace lockstep::data
