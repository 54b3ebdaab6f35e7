// Edits of HDF5 files that follow from an input. Bytes of such a file changed at random hardly ever come by the
// checksums of HDF5's metadata; these files are whole for HDF5, and what they say is not what our readers expect.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "hdf5/hdf5.hpp"

namespace lockstep::fuzz {

// Takes numbers and texts off an input; zeros and "" at its end.
class Choices {
  public:
    explicit Choices(std::string_view bytes) : rest_(bytes) {}
    bool empty() const { return rest_.empty(); }
    std::uint8_t byte();
    std::size_t below(std::size_t limit);  // from a byte; 0 for a limit of 0
    std::uint64_t word();                  // eight bytes as they are
    std::uint64_t number();                // a telling one, or one of 1, 2 or 8 bytes
    std::string text();                    // its length is a byte

  private:
    std::string_view take(std::size_t count);
    std::string_view rest_;
};

// Applies what is left of `choices` to the file: attributes and datasets get other values, types and sizes, or go, or
// move; links appear; bytes of datasets change; the file is cut short.
void edit_hdf5(const std::string& path, Choices& choices);

// Sets text attributes of a file; those of objects that are missing are left out.
struct TextAttribute {
    std::string object, name, value;
};
void set_text_attributes(const std::string& path, const std::vector<TextAttribute>& attributes);

// The bytes of a dataset at its place in the file; "" unless it is contiguous and whole.
std::string bytes_of_dataset(const hdf5::File& file, const std::string& dataset);

}  // namespace lockstep::fuzz
