// CRC-32C, the checksum of TFRecord files: polynomial 0x1EDC6F41 (Castagnoli), bits reflected; RFC 3720, appendix B.4
// has test vectors.
#pragma once

#include <cstdint>
#include <string_view>

namespace lockstep::tensorboard {

std::uint32_t crc32c(std::string_view bytes);

}  // namespace lockstep::tensorboard
