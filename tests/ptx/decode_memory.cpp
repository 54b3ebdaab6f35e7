// The families that move between registers and memory.
#include <utility>

#include "ptx/decoder.hpp"

namespace lockstep::ptx {

namespace {

void space(Decoder& decoder) {
    decoder.modifiers().take_one_of<Space>({{"global", Space::global},
                                            {"shared", Space::shared},
                                            {"shared::cta", Space::shared},
                                            {"local", Space::local},
                                            {"param", Space::parameter}},
                                           decoder.made().space);
}

template <bool loads>
void load_or_store(Decoder& decoder) {
    Modifiers& modifiers = decoder.modifiers();
    Instruction& made = decoder.made();
    modifiers.take("weak");
    space(decoder);
    if (loads) modifiers.take("nc");
    // Hints for caches change nothing here.
    for (const auto hint : {"ca", "cg", "cs", "lu", "cv", "wb", "wt", "L1::no_allocate", "L1::evict_last",
                            "L1::evict_first", "L1::evict_normal", "L2::64B", "L2::128B", "L2::256B"})
        modifiers.take(hint);
    modifiers.take_one_of<std::uint8_t>({{"v2", 2}, {"v4", 4}, {"v8", 8}}, made.count);
    const Type type = modifiers.type();
    if (type == Type::none) decoder.unknown("its type is missing or not known");
    decoder.set(Group::memory, loads ? Op::load : Op::store, type);
    made.bytes = static_cast<std::uint8_t>(bytes_of(type));
    const Operand& values = decoder.operand(loads ? 0 : 1);
    const Operand& first = values.kind == Operand::Kind::list ? values.parts.at(0) : values;
    made.list = decoder.list(values, made.bytes, made.count, true);
    made.place_bytes = static_cast<std::uint8_t>(decoder.place_bytes(first));
    if (made.place_bytes == 0) made.place_bytes = static_cast<std::uint8_t>(std::max<int>(made.bytes, 2));
    decoder.address(decoder.operand(loads ? 1 : 0));
    if (!loads && made.space == Space::parameter) decoder.unknown("a kernel's parameters cannot be written");
}

void copy_async(Decoder& decoder) {
    Modifiers& modifiers = decoder.modifiers();
    Instruction& made = decoder.made();
    if (modifiers.take("commit_group")) return decoder.set(Group::memory, Op::commit_group, Type::none);
    if (modifiers.take("wait_all")) return decoder.set(Group::memory, Op::wait_all, Type::none);
    if (modifiers.take("wait_group")) {
        decoder.set(Group::memory, Op::wait_group, Type::none);
        const Operand& groups = decoder.operand(0);
        if (groups.kind != Operand::Kind::integer) decoder.unknown("its operand is not a number");
        made.offset = static_cast<std::int64_t>(groups.value);
        return;
    }
    const bool only_l2 = modifiers.take("cg");
    if (!only_l2 && !modifiers.take("ca")) decoder.unknown("one of .ca and .cg is missing");
    for (const auto hint : {"L2::64B", "L2::128B", "L2::256B"}) modifiers.take(hint);
    if ((!modifiers.take("shared") && !modifiers.take("shared::cta")) || !modifiers.take("global"))
        decoder.unknown("it copies from global to shared memory");
    decoder.set(Group::memory, Op::copy_async, Type::none);
    made.space = Space::global;
    decoder.address(decoder.operand(1));
    if (made.a != no_slot && made.from_bytes != 8) decoder.unknown("addresses of global memory have 64 bits");
    made.b = std::exchange(made.a, no_slot);
    made.source_offset = made.offset;
    made.space = Space::shared;
    decoder.address(decoder.operand(0));
    const Operand& size = decoder.operand(2);
    if (size.kind != Operand::Kind::integer || (size.value != 4 && size.value != 8 && size.value != 16) ||
        (only_l2 && size.value != 16))
        decoder.unknown("its size is 4, 8 or 16 bytes, with .cg 16");
    made.bytes = static_cast<std::uint8_t>(size.value);
    if (decoder.operands() > 3) made.c = decoder.slot(decoder.operand(3), 4);
}

void prefetch(Decoder& decoder) {
    if (!decoder.modifiers().take("global") || !decoder.modifiers().take("L2"))
        decoder.unknown("only prefetch.global.L2 is known");
    decoder.set(Group::memory, Op::prefetch, Type::none);
    decoder.made().space = Space::global;
    decoder.address(decoder.operand(0));
}

}  // namespace

void add_memory_families(Families& families) {
    families["ld"] = load_or_store<true>;
    families["st"] = load_or_store<false>;
    families["prefetch"] = prefetch;
    families["cp"] = [](Decoder& decoder) {
        if (!decoder.modifiers().take("async")) decoder.unknown("only cp.async is known");
        copy_async(decoder);
    };
}

}  // namespace lockstep::ptx
