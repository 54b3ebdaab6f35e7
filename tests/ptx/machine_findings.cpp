#include <fmt/format.h>

#include "ptx/state.hpp"

namespace lockstep::ptx {

namespace {

std::string_view name_of(FindingKind kind) {
    switch (kind) {
        case FindingKind::race_shared:
            return "race in shared memory";
        case FindingKind::race_global:
            return "race in global memory";
        case FindingKind::never_written:
            return "never written";
        case FindingKind::out_of_bounds:
            return "out of bounds";
        case FindingKind::misaligned:
            return "misaligned";
        case FindingKind::barrier:
            return "barrier";
        case FindingKind::collective:
            return "collective";
        case FindingKind::asynchronous_copy:
            return "asynchronous copy";
        case FindingKind::resources:
            return "resources";
    }
    return "";
}

std::uint16_t bit_of(FindingKind kind) {
    return static_cast<std::uint16_t>(1u << static_cast<unsigned>(kind));
}

}  // namespace

std::string describe(const Finding& finding) {
    const std::string place = finding.file.empty()
                                  ? fmt::format("PTX line {}", finding.ptx_line)
                                  : fmt::format("{}:{} (PTX line {})", finding.file, finding.line, finding.ptx_line);
    if (finding.kind == FindingKind::resources)
        return fmt::format("{}: {}: {}", name_of(finding.kind), finding.kernel, finding.text);
    return fmt::format("{}: {}: {}: block ({}, {}, {}), warp {}, lane {}: {}", name_of(finding.kind), finding.kernel,
                       place, finding.block.x, finding.block.y, finding.block.z, finding.warp, finding.lane,
                       finding.text);
}

std::string place_text(const Kernel& kernel, std::uint32_t pc) {
    const Instruction& one = kernel.code[pc];
    const auto file = static_cast<std::size_t>(one.location.file);
    if (one.location.line == 0 || file >= kernel.files.size()) return fmt::format("PTX line {}", one.ptx_line);
    const std::string& path = kernel.files[file];
    return fmt::format("{}:{} (PTX line {})", path.substr(path.rfind('/') + 1), one.location.line, one.ptx_line);
}

bool Lanes::is_reported(FindingKind kind) const {
    return (launch->reported[pc] & bit_of(kind)) != 0;
}

void Lanes::report(FindingKind kind, int lane, std::string text, bool stop) {
    launch->stopped = launch->stopped || stop;
    if (is_reported(kind)) return;
    launch->reported[pc] |= bit_of(kind);
    const Kernel& kernel = launch->kernel;
    const Instruction& one = kernel.code[pc];
    Finding finding{kind,      kernel.shape.name, {},   one.ptx_line,   one.ptx_line,
                    block->id, warp->index,       lane, std::move(text)};
    const auto source = static_cast<std::size_t>(one.location.file);
    if (one.location.line > 0 && source < kernel.files.size()) {
        finding.file = kernel.files[source];
        finding.line = one.location.line;
    }
    launch->findings.push_back(std::move(finding));
    if (launch->findings.size() >= static_cast<std::size_t>(launch->options.most_findings)) launch->stopped = true;
}

void Lanes::report_never_written(std::uint32_t lanes, std::uint32_t from) {
    const std::uint32_t use = pc;
    const std::string at = place_text(launch->kernel, use);
    if (from != no_origin) pc = from;
    if (!is_reported(FindingKind::never_written))
        report(FindingKind::never_written, std::countr_zero(lanes),
               from == no_origin ? "uses a register that was never written, or what was computed from one"
                                 : fmt::format("reads memory that was never written; what was read is used at {}", at));
    pc = use;
}

}  // namespace lockstep::ptx
