// The families that compute: integers, floating-point numbers, conversions, predicates, moves.
#include "ptx/decoder.hpp"

namespace lockstep::ptx {

namespace {

bool is_floating(Type type) {
    return type >= Type::f16;
}
bool is_signed(Type type) {
    return type >= Type::s8 && type <= Type::s64;
}

// u16, u32 or u64 of any integer or untyped type of that size.
Type unsigned_of(Type type) {
    switch (bytes_of(type)) {
        case 1:
            return Type::u8;
        case 2:
            return Type::u16;
        case 4:
            return Type::u32;
        default:
            return Type::u64;
    }
}

Type needed_type(Decoder& decoder) {
    const Type type = decoder.modifiers().type();
    if (type == Type::none) decoder.unknown("its type is missing or not known");
    return type;
}

void sources(Decoder& decoder, int bytes, std::size_t count) {
    Instruction& made = decoder.made();
    if (decoder.operands() != count + 1) decoder.unknown("it has another number of operands");
    made.d = decoder.slot(decoder.operand(0), bytes);
    made.a = decoder.slot(decoder.operand(1), bytes);
    if (count > 1) made.b = decoder.slot(decoder.operand(2), bytes);
    if (count > 2) made.c = decoder.slot(decoder.operand(3), bytes);
}

void floating(Decoder& decoder, Op op, std::size_t count) {
    Modifiers& modifiers = decoder.modifiers();
    Instruction& made = decoder.made();
    const bool approximate = modifiers.take("approx");  // computed as well as can be, which the manual allows
    if (!approximate) modifiers.take("full");
    made.rounding = modifiers.rounding();
    made.flush = modifiers.take("ftz");
    made.saturate = modifiers.take("sat");
    const bool keeps_nan = modifiers.take("NaN");
    made.flag = keeps_nan;
    const Type type = needed_type(decoder);
    if (!is_floating(type)) decoder.unknown("not for this type");
    const bool narrow = bytes_of(type) == 2 || type == Type::f16x2 || type == Type::bf16x2;
    if (made.rounding >= Rounding::nearest_integer || (narrow && made.rounding != Rounding::nearest))
        decoder.unknown("not with this rounding");
    if (narrow && (made.flush || made.saturate)) decoder.unknown("not with .ftz or .sat");
    decoder.set(Group::floating, op, type);
    sources(decoder, bytes_of(type), count);
}

template <Op op, std::size_t count>
void only_floating(Decoder& decoder) {
    floating(decoder, op, count);
}

// An operation on both kinds of numbers, whose opcode does not end with its type's modifiers.
bool says_floating(const Decoder& decoder) {
    const std::string_view opcode = decoder.statement().opcode;
    const auto type = type_of(opcode.substr(opcode.rfind('.') + 1));
    return is_floating(type);
}

template <Op op, std::size_t count, bool sign_matters>
void both_kinds(Decoder& decoder) {
    if (says_floating(decoder)) return floating(decoder, op, count);
    const Type type = needed_type(decoder);
    if (bytes_of(type) < 2) decoder.unknown("not for this type");
    decoder.set(Group::integer, op, sign_matters && is_signed(type) ? type : unsigned_of(type));
    sources(decoder, bytes_of(type), count);
}

template <Op low, Op high, Op wide, std::size_t count>
void product(Decoder& decoder) {
    if (says_floating(decoder)) return floating(decoder, count == 3 ? Op::fma : Op::multiply, count);
    Op op = low;
    if (!decoder.modifiers().take_one_of<Op>({{"lo", low}, {"hi", high}, {"wide", wide}}, op))
        decoder.unknown("one of .lo, .hi and .wide is missing");
    const Type type = needed_type(decoder);
    const int bytes = bytes_of(type);
    if (op != wide) {
        decoder.set(Group::integer, op, op == low ? unsigned_of(type) : type);
        return sources(decoder, bytes, count);
    }
    if (bytes > 4) decoder.unknown("not for this type");
    decoder.set(Group::integer, op, type);
    Instruction& made = decoder.made();
    made.d = decoder.slot(decoder.operand(0), 2 * bytes);
    made.a = decoder.slot(decoder.operand(1), bytes);
    made.b = decoder.slot(decoder.operand(2), bytes);
    if (count > 2) made.c = decoder.slot(decoder.operand(3), 2 * bytes);
}

template <Op op, std::size_t count>
void logic(Decoder& decoder) {
    const Type type = needed_type(decoder);
    if (type != Type::pred) {
        decoder.set(Group::integer, op, unsigned_of(type));
        return sources(decoder, bytes_of(type), count);
    }
    decoder.set(Group::predicate, op, type);
    Instruction& made = decoder.made();
    bool negated = false, second = false;
    made.d = decoder.predicate(decoder.operand(0), negated);
    made.a = decoder.predicate(decoder.operand(1), negated);
    if (count > 1) made.b = decoder.predicate(decoder.operand(2), second);
    if (negated || second) decoder.unknown("an operand is negated");
}

template <Op op>
void shift(Decoder& decoder) {
    const Type type = needed_type(decoder);
    decoder.set(Group::integer, op, op == Op::shift_right && is_signed(type) ? type : unsigned_of(type));
    Instruction& made = decoder.made();
    made.d = decoder.slot(decoder.operand(0), bytes_of(type));
    made.a = decoder.slot(decoder.operand(1), bytes_of(type));
    made.b = decoder.slot(decoder.operand(2), 4);
}

void insert(Decoder& decoder) {
    const Type type = needed_type(decoder);
    decoder.set(Group::integer, Op::insert, unsigned_of(type));
    Instruction& made = decoder.made();
    made.d = decoder.slot(decoder.operand(0), bytes_of(type));
    made.a = decoder.slot(decoder.operand(1), bytes_of(type));
    made.b = decoder.slot(decoder.operand(2), bytes_of(type));
    made.c = decoder.slot(decoder.operand(3), 4);
    made.fourth = decoder.slot(decoder.operand(4), 4);
}

void extract(Decoder& decoder) {
    const Type type = needed_type(decoder);
    decoder.set(Group::integer, Op::extract, type);
    Instruction& made = decoder.made();
    made.d = decoder.slot(decoder.operand(0), bytes_of(type));
    made.a = decoder.slot(decoder.operand(1), bytes_of(type));
    made.b = decoder.slot(decoder.operand(2), 4);
    made.c = decoder.slot(decoder.operand(3), 4);
}

// Of a number of any size, a 32-bit one.
template <Op op>
void count_bits(Decoder& decoder) {
    const bool shift_amount = op == Op::find && decoder.modifiers().take("shiftamt");
    const Type type = needed_type(decoder);
    decoder.set(Group::integer, shift_amount ? Op::find_shift : op,
                op == Op::find && is_signed(type) ? type : unsigned_of(type));
    decoder.made().d = decoder.slot(decoder.operand(0), 4);
    decoder.made().a = decoder.slot(decoder.operand(1), bytes_of(type));
}

void permute(Decoder& decoder) {
    if (needed_type(decoder) != Type::b32) decoder.unknown("not for this type");
    decoder.set(Group::integer, Op::permute, Type::u32);
    sources(decoder, 4, 3);
}

void funnel(Decoder& decoder) {
    Op op = Op::funnel_left;
    decoder.modifiers().take_one_of<Op>({{"l", Op::funnel_left}, {"r", Op::funnel_right}}, op);
    decoder.made().flag = decoder.modifiers().take("wrap");
    if (!decoder.made().flag) decoder.modifiers().take("clamp");
    if (needed_type(decoder) != Type::b32) decoder.unknown("not for this type");
    decoder.set(Group::integer, op, Type::u32);
    sources(decoder, 4, 3);
}

void logic3(Decoder& decoder) {
    if (needed_type(decoder) != Type::b32) decoder.unknown("not for this type");
    decoder.set(Group::integer, Op::logic3, Type::u32);
    const Operand& table = decoder.operand(4);
    if (table.kind != Operand::Kind::integer) decoder.unknown("its table is not a number");
    Instruction& made = decoder.made();
    made.offset = static_cast<std::int64_t>(table.value);
    made.d = decoder.slot(decoder.operand(0), 4);
    made.a = decoder.slot(decoder.operand(1), 4);
    made.b = decoder.slot(decoder.operand(2), 4);
    made.c = decoder.slot(decoder.operand(3), 4);
}

void select(Decoder& decoder) {
    const Type type = needed_type(decoder);
    decoder.set(Group::integer, Op::select, unsigned_of(type));
    Instruction& made = decoder.made();
    made.d = decoder.slot(decoder.operand(0), bytes_of(type));
    made.a = decoder.slot(decoder.operand(1), bytes_of(type));
    made.b = decoder.slot(decoder.operand(2), bytes_of(type));
    made.c = decoder.predicate(decoder.operand(3), made.flag);
}

void compare(Decoder& decoder) {
    Modifiers& modifiers = decoder.modifiers();
    Instruction& made = decoder.made();
    Compare how = Compare::eq;
    if (!modifiers.take_one_of<Compare>({{"eq", Compare::eq},
                                         {"ne", Compare::ne},
                                         {"lt", Compare::lt},
                                         {"le", Compare::le},
                                         {"gt", Compare::gt},
                                         {"ge", Compare::ge},
                                         {"lo", Compare::lt},
                                         {"ls", Compare::le},
                                         {"hi", Compare::gt},
                                         {"hs", Compare::ge},
                                         {"equ", Compare::equ},
                                         {"neu", Compare::neu},
                                         {"ltu", Compare::ltu},
                                         {"leu", Compare::leu},
                                         {"gtu", Compare::gtu},
                                         {"geu", Compare::geu},
                                         {"num", Compare::num},
                                         {"nan", Compare::nan}},
                                        how))
        decoder.unknown("its comparison is not known");
    Combine combine = Combine::none;
    modifiers.take_one_of<Combine>({{"and", Combine::bit_and}, {"or", Combine::bit_or}, {"xor", Combine::bit_xor}},
                                   combine);
    made.flush = modifiers.take("ftz");
    const Type type = needed_type(decoder);
    const bool sign_matters = is_signed(type) || is_floating(type);
    decoder.set(Group::predicate, Op::compare, sign_matters ? type : unsigned_of(type));
    made.mode = static_cast<std::uint8_t>(how);
    made.combine = static_cast<std::uint8_t>(combine);
    bool negated = false;
    const Operand& to = decoder.operand(0);
    if (to.kind == Operand::Kind::pair) {
        made.d = decoder.predicate(to.parts[0], negated);
        made.second = decoder.predicate(to.parts[1], negated);
    } else {
        made.d = decoder.predicate(to, negated);
    }
    made.a = decoder.slot(decoder.operand(1), bytes_of(type));
    made.b = decoder.slot(decoder.operand(2), bytes_of(type));
    if (combine != Combine::none) made.fourth = decoder.predicate(decoder.operand(3), made.flag);
}

void move(Decoder& decoder) {
    const Type type = needed_type(decoder);
    const int bytes = bytes_of(type);
    Instruction& made = decoder.made();
    const Operand &to = decoder.operand(0), &from = decoder.operand(1);
    if (type == Type::pred) {
        decoder.set(Group::predicate, Op::move, type);
        made.d = decoder.predicate(to, made.flag);
        made.a = decoder.predicate(from, made.flag);
    } else if (from.kind == Operand::Kind::list || to.kind == Operand::Kind::list) {
        const bool packs = from.kind == Operand::Kind::list;
        decoder.set(Group::integer, packs ? Op::pack : Op::unpack, unsigned_of(type));
        const Operand& parts = packs ? from : to;
        made.count = static_cast<std::uint8_t>(parts.parts.size());
        if (made.count == 0 || bytes % made.count != 0 || bytes / made.count < 2)
            decoder.unknown("its parts do not fill the register");
        made.bytes = static_cast<std::uint8_t>(bytes / made.count);
        made.list = decoder.list(parts, made.bytes, made.count);
        (packs ? made.d : made.a) = decoder.slot(packs ? to : from, bytes);
    } else if (decoder.is_symbol_address(from)) {
        decoder.set(Group::integer, Op::move, unsigned_of(type));
        decoder.set_offset_to_symbol(from);
        Operand number;
        number.kind = Operand::Kind::integer;
        number.value = static_cast<std::uint64_t>(made.offset);
        made.d = decoder.slot(to, bytes);
        made.a = decoder.slot(number, bytes);
    } else {
        decoder.set(Group::integer, Op::move, unsigned_of(type));
        made.d = decoder.slot(to, bytes);
        made.a = decoder.slot(from, bytes);
    }
}

void convert(Decoder& decoder) {
    Modifiers& modifiers = decoder.modifiers();
    Instruction& made = decoder.made();
    made.rounding = modifiers.rounding();
    made.flush = modifiers.take("ftz");
    made.saturate = modifiers.take("sat");
    const bool relu = modifiers.take("relu");
    if (relu) decoder.unknown("the modifier .relu is not known here");
    const Type type = needed_type(decoder), from = needed_type(decoder);
    made.from = from;
    if (type == Type::f16x2 || type == Type::bf16x2) {
        decoder.set(Group::convert, Op::convert_pair, type);
        if (from != Type::f32 || made.saturate || made.flush) decoder.unknown("not with these modifiers");
        made.d = decoder.slot(decoder.operand(0), 4);
        made.a = decoder.slot(decoder.operand(1), 4);
        made.b = decoder.slot(decoder.operand(2), 4);
    } else {
        decoder.set(Group::convert, Op::convert, type);
        made.d = decoder.slot(decoder.operand(0), bytes_of(type), true);
        made.a = decoder.slot(decoder.operand(1), bytes_of(from), true);
        made.place_bytes = static_cast<std::uint8_t>(decoder.place_bytes(decoder.operand(0)));
        made.from_bytes = static_cast<std::uint8_t>(decoder.place_bytes(decoder.operand(1)));
        if (made.from_bytes == 0) made.from_bytes = static_cast<std::uint8_t>(std::max(bytes_of(from), 2));
        made.flag = made.from_bytes == 8 && !made.saturate && !is_floating(type) && !is_floating(from) &&
                    std::min(bytes_of(type), bytes_of(from)) <= 4;
    }
}

void convert_address(Decoder& decoder) {
    Modifiers& modifiers = decoder.modifiers();
    Instruction& made = decoder.made();
    const bool to_space = modifiers.take("to");
    if (!modifiers.take_one_of<Space>({{"global", Space::global},
                                       {"shared::cta", Space::shared},
                                       {"shared", Space::shared},
                                       {"local", Space::local},
                                       {"param", Space::parameter}},
                                      made.space))
        decoder.unknown("its state space is not known");
    if (needed_type(decoder) != Type::u64) decoder.unknown("addresses have 64 bits");
    decoder.set(Group::convert, to_space ? Op::from_generic : Op::to_generic, Type::u64);
    made.d = decoder.slot(decoder.operand(0), 8);
    const Operand& from = decoder.operand(1);
    if (decoder.is_symbol_address(from)) {
        const Space space = made.space;
        decoder.set_offset_to_symbol(from);
        if (space != made.space) decoder.unknown("the variable is in another state space");
        Operand number;
        number.kind = Operand::Kind::integer;
        number.value = static_cast<std::uint64_t>(made.offset);
        made.a = decoder.slot(number, 8);
    } else {
        made.a = decoder.slot(from, 8);
    }
}

}  // namespace

void add_arithmetic_families(Families& families) {
    families["add"] = both_kinds<Op::add, 2, false>;
    families["sub"] = both_kinds<Op::sub, 2, false>;
    families["mul"] = product<Op::mul_low, Op::mul_high, Op::mul_wide, 2>;
    families["mad"] = product<Op::mad_low, Op::mad_high, Op::mad_wide, 3>;
    families["fma"] = only_floating<Op::fma, 3>;
    families["div"] = both_kinds<Op::divide, 2, true>;
    families["rem"] = both_kinds<Op::remainder, 2, true>;
    families["min"] = both_kinds<Op::minimum, 2, true>;
    families["max"] = both_kinds<Op::maximum, 2, true>;
    families["abs"] = both_kinds<Op::absolute, 1, true>;
    families["neg"] = both_kinds<Op::negate, 1, false>;
    families["and"] = logic<Op::bit_and, 2>;
    families["or"] = logic<Op::bit_or, 2>;
    families["xor"] = logic<Op::bit_xor, 2>;
    families["not"] = logic<Op::bit_not, 1>;
    families["shl"] = shift<Op::shift_left>;
    families["shr"] = shift<Op::shift_right>;
    families["bfi"] = insert;
    families["bfe"] = extract;
    families["bfind"] = count_bits<Op::find>;
    families["popc"] = count_bits<Op::count_ones>;
    families["clz"] = count_bits<Op::leading_zeros>;
    families["brev"] = logic<Op::reverse, 1>;
    families["prmt"] = permute;
    families["shf"] = funnel;
    families["lop3"] = logic3;
    families["selp"] = select;
    families["setp"] = compare;
    families["mov"] = move;
    families["cvt"] = convert;
    families["cvta"] = convert_address;
    families["copysign"] = only_floating<Op::copy_sign, 2>;
    families["rcp"] = only_floating<Op::reciprocal, 1>;
    families["sqrt"] = only_floating<Op::square_root, 1>;
    families["ex2"] = only_floating<Op::exp2, 1>;
    families["lg2"] = only_floating<Op::log2, 1>;
    families["rsqrt"] = only_floating<Op::reciprocal_root, 1>;
    families["sin"] = only_floating<Op::sine, 1>;
    families["cos"] = only_floating<Op::cosine, 1>;
    families["tanh"] = only_floating<Op::tangent_h, 1>;
}

}  // namespace lockstep::ptx
