#include "cluster/topology.hpp"

#include <hwloc.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cstdint>
#include <string_view>

#include "base/error.hpp"
#include "base/whole_file.hpp"

namespace lockstep::cluster {
namespace {

// Everything but hwloc_topology_load. Without the filter there are no GPUs and network cards.
void prepare(hwloc_topology_t topology, unsigned long flags) {
    flags |= HWLOC_TOPOLOGY_FLAG_INCLUDE_DISALLOWED;
    if (hwloc_topology_set_io_types_filter(topology, HWLOC_TYPE_FILTER_KEEP_IMPORTANT) != 0 ||
        hwloc_topology_set_flags(topology, flags) != 0)
        throw fault_error("hwloc could not be set up: {}", system_error_text());
}

hwloc_topology_t started() {
    hwloc_topology_t topology = nullptr;
    if (hwloc_topology_init(&topology) != 0) throw fault_error("hwloc could not start: {}", system_error_text());
    return topology;
}

// Whether hwloc takes a type for a processing unit or a memory node: two letters of the name are enough, in either
// case, and whatever follows.
bool has_number(std::string_view value) {
    std::string type(value.substr(0, 2));
    for (char& letter : type) letter = static_cast<char>(std::tolower(static_cast<unsigned char>(letter)));
    return type == "pu" || type == "nu" || type == "no";
}

// hwloc stops reading a tag at any other.
bool has_foreign_escape(std::string_view value) {
    constexpr std::array<std::string_view, 7> known = {"&#10;", "&#13;", "&#9;", "&quot;", "&lt;", "&gt;", "&amp;"};
    for (std::size_t at = value.find('&'); at != std::string_view::npos; at = value.find('&', at + 1))
        if (std::none_of(known.begin(), known.end(),
                         [&](std::string_view one) { return value.substr(at).starts_with(one); }))
            return true;
    return false;
}

// hwloc sets a bit for the number of each processing unit and memory node, and gives one without a number the largest:
// 512 MiB for a bit. attributes: of an object, as its tag has them.
void check_number(std::string_view attributes, const std::string& path) {
    constexpr std::string_view space = " \t\r\n", letters = "abcdefghijklmnopqrstuvwxyz_";
    constexpr std::uint64_t most = 1 << 20;
    bool needs_one = false, has_one = false, fits = true;
    std::string_view rest = attributes;
    for (;;) {
        rest.remove_prefix(std::min(rest.find_first_not_of(space), rest.size()));
        if (rest.empty() || rest == "/") break;
        const std::size_t name_end = std::min(rest.find_first_not_of(letters), rest.size());
        const std::string_view name = rest.substr(0, name_end), start = rest.substr(name_end, 2);
        const std::size_t end = rest.find('"', name_end + 2);
        const std::string_view value = rest.substr(std::min(name_end + 2, rest.size()), end - name_end - 2);
        if (start != "=\"" || end == std::string_view::npos || has_foreign_escape(value))
            throw damaged_error("{} is damaged: the attributes of an object cannot be read", path);
        if (name == "type") needs_one = needs_one || has_number(value);
        if (name == "os_index") {
            std::uint64_t number = most;
            std::from_chars(value.data(), value.data() + value.size(), number);
            has_one = true;
            fits = fits && number < most;
        }
        rest.remove_prefix(end + 1);
    }
    if (needs_one && !(has_one && fits))
        throw damaged_error("{} is damaged: a processing unit or NUMA node has no number below {}", path, most);
}

void check_numbers(std::string_view xml, const std::string& path) {
    constexpr std::string_view object = "<object";
    for (std::size_t at = xml.find('<'); at != std::string_view::npos; at = xml.find('<', at + 1)) {
        const std::string_view tag = xml.substr(at, std::min(xml.find('>', at), xml.size()) - at);
        // hwloc reads a text that is open at the end of a tag as part of what follows.
        if (std::count(tag.begin(), tag.end(), '"') % 2 != 0)
            throw damaged_error("{} is damaged: a text in quotes does not end with its tag", path);
        if (tag.starts_with(object)) check_number(tag.substr(object.size()), path);
    }
}

}  // namespace

void Topology::Destroy::operator()(hwloc_topology* topology) const {
    hwloc_topology_destroy(topology);
}

void FreeBitmap::operator()(hwloc_bitmap_s* bitmap) const {
    hwloc_bitmap_free(bitmap);
}

Topology::Topology(hwloc_topology* topology) : topology_(topology) {}

Topology Topology::live() {
    Topology result(started());
    prepare(result.get(), 0);
    if (hwloc_topology_load(result.get()) != 0)
        throw fault_error("hwloc cannot read this machine's topology: {}", system_error_text());
    return result;
}

Topology Topology::from_xml(const std::string& path) {
    const std::string text = read_text_file(path);
    if (text.find("<topology") == std::string::npos)
        throw usage_error("{} is not an hwloc topology; write one on the node with: lstopo --force node.xml", path);
    check_numbers(text, path);
    Topology result(started());
    prepare(result.get(), 0);
    // including the terminating zero
    if (hwloc_topology_set_xmlbuffer(result.get(), text.c_str(), static_cast<int>(text.size() + 1)) != 0 ||
        hwloc_topology_load(result.get()) != 0)
        throw damaged_error(
            "{} is damaged: hwloc {} cannot read this topology; write it again with: lstopo --force --of xml {}", path,
            HWLOC_VERSION, path);
    return result;
}

Topology Topology::shared(const std::string& xml) {
    Topology result(started());
    prepare(result.get(), HWLOC_TOPOLOGY_FLAG_IS_THISSYSTEM);
    if (hwloc_topology_set_xmlbuffer(result.get(), xml.c_str(), static_cast<int>(xml.size() + 1)) != 0 ||
        hwloc_topology_load(result.get()) != 0)
        throw fault_error("hwloc cannot read the topology from local rank 0: {}", system_error_text());
    return result;
}

std::string Topology::to_xml() const {
    char* buffer = nullptr;
    int length = 0;
    if (hwloc_topology_export_xmlbuffer(get(), &buffer, &length, 0) != 0)
        throw fault_error("hwloc cannot write the topology as XML: {}", system_error_text());
    std::string xml(buffer);
    hwloc_free_xmlbuffer(get(), buffer);
    return xml;
}

bool Topology::is_this_machine() const {
    return hwloc_topology_is_thissystem(get()) != 0;
}

CpuSet Topology::allowed() const {
    return cpu_set_of(hwloc_topology_get_allowed_cpuset(get()));
}

CpuSet Topology::process_binding() const {
    const auto bound = bitmap_of({});
    if (!is_this_machine() || hwloc_get_cpubind(get(), bound.get(), HWLOC_CPUBIND_PROCESS) != 0) return allowed();
    const CpuSet all = cpu_set_of(hwloc_topology_get_complete_cpuset(get()));
    // Without binding support, hwloc returns an infinite or an empty set.
    if (hwloc_bitmap_weight(bound.get()) <= 0) return allowed();
    const CpuSet units = cpu_set_of(bound.get()) & all;
    return units.empty() ? allowed() : units;
}

CpuSet cpu_set_of(const hwloc_bitmap_s* bitmap) {
    std::vector<int> units;
    if (bitmap == nullptr || hwloc_bitmap_weight(bitmap) < 0) return {};  // an infinite set lists no units
    for (int unit = hwloc_bitmap_first(bitmap); unit >= 0; unit = hwloc_bitmap_next(bitmap, unit))
        units.push_back(unit);
    return CpuSet(std::move(units));
}

std::unique_ptr<hwloc_bitmap_s, FreeBitmap> bitmap_of(const CpuSet& set) {
    std::unique_ptr<hwloc_bitmap_s, FreeBitmap> bitmap(hwloc_bitmap_alloc());
    bool stored = bitmap != nullptr;
    for (const int unit : set.units())
        stored = stored && hwloc_bitmap_set(bitmap.get(), static_cast<unsigned>(unit)) == 0;
    if (!stored) throw fault_error("out of memory for a set of processing units");
    return bitmap;
}

}  // namespace lockstep::cluster
