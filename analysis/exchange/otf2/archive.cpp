#include "analysis/exchange/otf2/archive.hpp"

#include <cstddef>
#include <cstdio>
#include <memory>
#include <new>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "base/utf8.hpp"
#include "base/version.hpp"

namespace lockstep::analysis {
namespace {

constexpr std::uint64_t chunk_bytes = std::uint64_t{1} << 18;  // the least that OTF2 takes

using Chunks = std::vector<std::unique_ptr<std::byte[]>>;

// By default OTF2 keeps up to 128 MiB of events of every location. Where no second chunk is to be had, it writes the
// first one to the file. Definitions are not written in between.
extern "C" void* allocate_chunk(void*, OTF2_FileType type, OTF2_LocationRef, void** buffer, std::uint64_t bytes) {
    auto* chunks = static_cast<Chunks*>(*buffer);
    if (type == OTF2_FILETYPE_EVENTS && chunks) return nullptr;
    try {
        if (!chunks) *buffer = chunks = new Chunks;
        chunks->push_back(std::make_unique_for_overwrite<std::byte[]>(bytes));
        return chunks->back().get();
    } catch (const std::bad_alloc&) {
        return nullptr;
    }
}

extern "C" void free_chunks(void*, OTF2_FileType, OTF2_LocationRef, void** buffer, bool) {
    delete static_cast<Chunks*>(*buffer);
    *buffer = nullptr;
}

extern "C" OTF2_FlushType always_flush(void*, OTF2_FileType, OTF2_LocationRef, void*, bool) {
    return OTF2_FLUSH;
}

// OTF2 keeps the addresses. Without the second callback of the first, no records of flushes are among the events.
constexpr OTF2_FlushCallbacks flush_callbacks = {always_flush, nullptr};
constexpr OTF2_MemoryCallbacks memory_callbacks = {allocate_chunk, free_chunks};

}  // namespace

OTF2_ErrorCode Otf2Archive::note_failure(void* archive, const char*, std::uint64_t, const char*, OTF2_ErrorCode code,
                                         const char* format, std::va_list arguments) {
    auto& self = *static_cast<Otf2Archive*>(archive);
    // Codes below 0 are warnings.
    if (code > OTF2_SUCCESS && self.failure_ == OTF2_SUCCESS) {
        self.failure_ = code;
        std::vsnprintf(self.failure_words_.data(), self.failure_words_.size(), format, arguments);
    }
    return code;
}

Otf2Archive::Otf2Archive(const std::string& folder, std::string path) : path_(std::move(path)) {
    callback_before_ = OTF2_Error_RegisterCallback(note_failure, this);
    archive_ = OTF2_Archive_Open(folder.c_str(), "traces", OTF2_FILEMODE_WRITE, chunk_bytes,
                                 OTF2_CHUNK_SIZE_DEFINITIONS_DEFAULT, OTF2_SUBSTRATE_POSIX, OTF2_COMPRESSION_NONE);
    try {
        check(archive_ ? OTF2_SUCCESS : OTF2_ERROR_INVALID);
        check(OTF2_Archive_SetFlushCallbacks(archive_, &flush_callbacks, nullptr));
        check(OTF2_Archive_SetMemoryCallbacks(archive_, &memory_callbacks, nullptr));
        check(OTF2_Archive_SetSerialCollectiveCallbacks(archive_));
        check(OTF2_Archive_SetCreator(archive_, fmt::format("lockstep-analyze {}", version()).c_str()));
        check(OTF2_Archive_OpenEvtFiles(archive_));
    } catch (...) {
        OTF2_Error_RegisterCallback(callback_before_, nullptr);
        throw;
    }
}

Otf2Archive::~Otf2Archive() {
    // Where a write failed, OTF2 3.0.2 crashes in closing the archive; the program is about to end.
    if (archive_ && failure_ == OTF2_SUCCESS) OTF2_Archive_Close(archive_);
    OTF2_Error_RegisterCallback(callback_before_, nullptr);
}

// Some calls say OTF2_SUCCESS though a write of theirs failed; the callback hears of it.
void Otf2Archive::check(OTF2_ErrorCode code) const {
    if (code == OTF2_SUCCESS && failure_ == OTF2_SUCCESS) return;
    const OTF2_ErrorCode cause = failure_ == OTF2_SUCCESS ? code : failure_;
    const std::string_view words = failure_words_.data();
    throw fault_error("{} cannot be written: OTF2 reports: {}{}{}", path_, OTF2_Error_GetDescription(cause),
                      words.empty() ? "" : "; ", words);
}

OTF2_EvtWriter* Otf2Archive::open_location(OTF2_LocationRef location) const {
    OTF2_EvtWriter* writer = OTF2_Archive_GetEvtWriter(archive_, location);
    check(writer ? OTF2_SUCCESS : OTF2_ERROR_INVALID);
    return writer;
}

std::uint64_t Otf2Archive::close_location(OTF2_EvtWriter* writer) const {
    std::uint64_t events = 0;
    check(OTF2_EvtWriter_GetNumberOfEvents(writer, &events));
    check(OTF2_Archive_CloseEvtWriter(archive_, writer));
    return events;
}

void Otf2Archive::end_events() const {
    check(OTF2_Archive_CloseEvtFiles(archive_));
    check(OTF2_Archive_OpenDefFiles(archive_));
}

void Otf2Archive::write_empty_definitions(OTF2_LocationRef location) const {
    OTF2_DefWriter* writer = OTF2_Archive_GetDefWriter(archive_, location);
    check(writer ? OTF2_SUCCESS : OTF2_ERROR_INVALID);
    check(OTF2_Archive_CloseDefWriter(archive_, writer));
}

OTF2_GlobalDefWriter* Otf2Archive::definitions() {
    if (!definitions_) {
        check(OTF2_Archive_CloseDefFiles(archive_));
        definitions_ = OTF2_Archive_GetGlobalDefWriter(archive_);
        check(definitions_ ? OTF2_SUCCESS : OTF2_ERROR_INVALID);
    }
    return definitions_;
}

OTF2_StringRef Otf2Archive::string(const std::string& text) {
    const auto [at, is_new] = strings_.emplace(otf2_text(text), static_cast<OTF2_StringRef>(strings_.size()));
    if (is_new) check(OTF2_GlobalDefWriter_WriteString(definitions(), at->second, at->first.c_str()));
    return at->second;
}

void Otf2Archive::finish() {
    check(OTF2_Archive_Close(std::exchange(archive_, nullptr)));
}

std::string otf2_text(const std::string& text) {
    std::string valid;
    for (std::string_view rest = text; !rest.empty();) {
        const Character character = first_character(rest);
        const bool fits = character.bytes > 0 && character.code != 0;
        valid += fits ? rest.substr(0, character.bytes) : "\xEF\xBF\xBD";
        rest.remove_prefix(fits ? character.bytes : 1);
    }
    return valid;
}

}  // namespace lockstep::analysis
