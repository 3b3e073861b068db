// The fast reader of the .skeleton text format. It accepts files in their usual form and returns FAILED for anything
// else: the caller then reads the file line by line, which decides whether it is an error and names the line.

#include <charconv>
#include <cstddef>
#include <cstdint>

namespace {

constexpr int JOINTS = 25;
constexpr int BODY_FIELDS = 10;
constexpr int JOINT_FIELDS = 12;
constexpr std::uint64_t MAX_BODIES = 64;
constexpr int MAX_DIGITS = 20;
constexpr double FARTHEST = 1e4;

constexpr double POWERS[] = {1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15};

bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\r'; }

constexpr unsigned NUMBER = 1, BLANK = 2, OTHER = 4;

struct Classes {
    unsigned char of[256] = {};
    constexpr Classes() {
        for (unsigned char& c : of) c = OTHER;
        for (const char* c = "0123456789+-.eE"; *c; ++c) of[static_cast<unsigned char>(*c)] = NUMBER;
        for (const char* c = " \t\r"; *c; ++c) of[static_cast<unsigned char>(*c)] = BLANK;
    }
};
constexpr Classes CLASSES;

struct Reader {
    const char* at;
    const char* end;

    void skip_blanks() {
        while (at < end && is_blank(*at)) ++at;
    }
    bool end_of_field() const { return at == end || is_blank(*at) || *at == '\n'; }

    bool end_of_line() {
        skip_blanks();
        if (at == end) return true;
        return *at++ == '\n';
    }
    bool integer(std::uint64_t& value) {
        skip_blanks();
        if (at == end || *at < '0' || *at > '9') return false;
        auto [stop, error] = std::from_chars(at, end, value);
        const bool readable = error == std::errc() && stop - at <= MAX_DIGITS;  // zeros may stand before it
        at = stop;
        return readable && end_of_field();
    }
    bool count_line(std::uint64_t& value) { return integer(value) && end_of_line(); }

    bool coordinate(float& value) {
        skip_blanks();
        if (short_decimal(value)) return true;
        if (at == end) return false;
        const char first = *at == '-' && at + 1 < end ? at[1] : *at;
        if ((first < '0' || first > '9') && first != '.') return false;  // from_chars would take inf and nan
        double exact;
        auto [stop, error] = std::from_chars(at, end, exact);
        at = stop;
        if (error != std::errc() || !end_of_field()) return false;
        if (exact > FARTHEST || exact < -FARTHEST) return false;
        value = static_cast<float>(exact);
        return true;
    }
    // -ddd.ddd of at most 15 digits: an exact integer over an exact power of ten, so one division rounds correctly.
    // Leaves `at` where it was if the field has another form.
    bool short_decimal(float& value) {
        const char* p = at;
        const bool negative = p < end && *p == '-';
        p += negative;
        const char* const first = p;
        std::uint64_t mantissa = 0;
        while (p < end && static_cast<unsigned char>(*p - '0') < 10) mantissa = mantissa * 10 + (*p++ - '0');
        const auto whole = p - first;
        if (whole == 0 || p == end || *p != '.') return false;
        const char* const fraction = ++p;
        while (p < end && static_cast<unsigned char>(*p - '0') < 10) mantissa = mantissa * 10 + (*p++ - '0');
        const auto decimals = p - fraction;
        if (whole + decimals > 15 || p == end || !(is_blank(*p) || *p == '\n')) return false;
        const double exact = static_cast<double>(mantissa) / POWERS[decimals];
        if (exact > FARTHEST) return false;
        value = static_cast<float>(negative ? -exact : exact);
        at = p;
        return true;
    }
    // The unused rest of a line. The only branch is the end of the line: branches on each field would be mispredicted.
    bool rest_of_line(int fields) {
        unsigned before = NUMBER, all = 0;
        int starts = 0;
        while (at < end && *at != '\n') {
            const unsigned now = CLASSES.of[static_cast<unsigned char>(*at++)];
            starts += static_cast<int>(now & ~before & NUMBER);
            all |= now;
            before = now;
        }
        at += at < end;
        return starts == fields && !(all & OTHER);
    }
};

}  // namespace

constexpr std::int64_t FAILED = -1;

// Returns the number of observations; `frame`, `body` and `joints` have room for `capacity` of them.
extern "C" std::int64_t read_skeleton(const char* text, std::size_t size, std::int64_t max_frames,
                                      std::int64_t capacity, std::int64_t* length, std::int64_t* frame,
                                      std::uint64_t* body, float* joints) {
    Reader in{text, text + size};
    std::uint64_t frames, bodies, joint_count;
    if (!in.count_line(frames) || frames > static_cast<std::uint64_t>(max_frames)) return FAILED;
    std::int64_t seen = 0;
    for (std::uint64_t t = 0; t < frames; ++t) {
        if (!in.count_line(bodies) || bodies > MAX_BODIES) return FAILED;
        const std::int64_t first = seen;
        for (std::uint64_t b = 0; b < bodies; ++b, ++seen) {
            if (seen == capacity) return FAILED;
            if (!in.integer(body[seen]) || !in.rest_of_line(BODY_FIELDS - 1)) return FAILED;
            for (std::int64_t other = first; other < seen; ++other)
                if (body[other] == body[seen]) return FAILED;
            if (!in.count_line(joint_count) || joint_count != JOINTS) return FAILED;
            float* point = joints + seen * JOINTS * 3;
            for (int j = 0; j < JOINTS; ++j, point += 3) {
                if (!in.coordinate(point[0]) || !in.coordinate(point[1]) || !in.coordinate(point[2])) return FAILED;
                if (!in.rest_of_line(JOINT_FIELDS - 3)) return FAILED;
            }
            frame[seen] = static_cast<std::int64_t>(t);
        }
    }
    while (in.at < in.end && (is_blank(*in.at) || *in.at == '\n')) ++in.at;
    if (in.at != in.end) return FAILED;
    *length = static_cast<std::int64_t>(frames);
    return seen;
}
