// An OTF2 archive that is being written: every call of the library is checked, and where one fails, what the library
// says of it becomes a fault error.
#pragma once

#include <otf2/otf2.h>

#include <array>
#include <cstdarg>
#include <cstdint>
#include <string>
#include <unordered_map>

namespace lockstep::analysis {

class Otf2Archive {
  public:
    Otf2Archive(const std::string& folder, std::string path);  // in the empty `folder`; errors name `path`
    ~Otf2Archive();
    Otf2Archive(const Otf2Archive&) = delete;
    Otf2Archive& operator=(const Otf2Archive&) = delete;

    void check(OTF2_ErrorCode code) const;  // of each call
    OTF2_Archive* get() const { return archive_; }

    // Any number of locations may be open at once, each with 256 KiB of memory.
    OTF2_EvtWriter* open_location(OTF2_LocationRef location) const;
    std::uint64_t close_location(OTF2_EvtWriter* writer) const;  // the number of its events

    // After the last event: the files of each location's own definitions, of which there are none, and the writer of
    // all others.
    void end_events() const;
    void write_empty_definitions(OTF2_LocationRef location) const;
    OTF2_GlobalDefWriter* definitions();
    OTF2_StringRef string(const std::string& text);  // defined where it is new

    void finish();  // must be called when all is written

  private:
    static OTF2_ErrorCode note_failure(void* archive, const char*, std::uint64_t, const char*, OTF2_ErrorCode code,
                                       const char* format, std::va_list arguments);

    std::string path_;
    OTF2_ErrorCallback callback_before_ = nullptr;
    OTF2_Archive* archive_ = nullptr;
    OTF2_GlobalDefWriter* definitions_ = nullptr;
    std::unordered_map<std::string, OTF2_StringRef> strings_;
    // The first failure that the library spoke of: the cause of all others.
    OTF2_ErrorCode failure_ = OTF2_SUCCESS;
    std::array<char, 512> failure_words_{};
};

// Text for OTF2, which holds UTF-8 without zeros: what is not valid becomes U+FFFD.
std::string otf2_text(const std::string& text);

}  // namespace lockstep::analysis
