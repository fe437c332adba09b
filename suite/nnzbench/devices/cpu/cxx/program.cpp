// The command built for one plan: `program check JOB`, or `program run JOB DATA ORDER SEED WORKERS SECONDS`.
//
// JOB is text, one item a line:  buffer OFFSET BYTES NAME
//                                launch ENTRY GX GY GZ BX BY BZ SHARED_BYTES ARGUMENT...
// where an argument is p<buffer index>, i<integer> or f<float's bits>. DATA holds the buffers' bytes at their offsets;
// what the launches changed is written back there.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <fstream>
#include <sstream>
#include <string>

#include "grid.h"

using namespace nnz_cpu;

namespace {

struct Buffer {
    size_t offset, bytes;
    std::string name;
    void* memory = nullptr;
};

struct Job {
    std::vector<Buffer> buffers;
    std::vector<Launch> launches;
    std::deque<uint64_t> scalars;  // what the arguments point to: 4-byte values and buffer addresses
};

const Entry& find_entry(const std::string& name) {
    const Entry* entry = entries;
    while (entry->name != nullptr && name != entry->name) ++entry;
    if (entry->name == nullptr) fail("no entry '%s'", name.c_str());
    return *entry;
}

const char* kind_name(char kind) {
    return kind == 'p' ? "a buffer" : kind == 'i' ? "an int" : kind == 'f' ? "a float" : "of another type";
}

void read_launch(Job& job, std::istringstream& line) {
    std::string name;
    Launch launch{};
    line >> name >> launch.grid.x >> launch.grid.y >> launch.grid.z >> launch.block.x >> launch.block.y >>
        launch.block.z >> launch.shared_bytes;
    launch.entry = &find_entry(name);
    const size_t wanted = std::strlen(launch.entry->kinds);
    std::vector<std::string> given;
    for (std::string argument; line >> argument;) given.push_back(argument);
    if (given.size() != wanted)
        fail("%s takes %zu arguments, the launch gives %zu", name.c_str(), wanted, given.size());
    for (size_t i = 0; i < wanted; ++i) {
        const char kind = given[i][0];
        if (kind != launch.entry->kinds[i])
            fail("argument %zu of %s is %s, the launch gives %s", i, name.c_str(), kind_name(launch.entry->kinds[i]),
                 kind_name(kind));
        const long long value = std::stoll(given[i].substr(1));
        job.scalars.push_back(kind == 'p' ? reinterpret_cast<uint64_t>(job.buffers.at(value).memory)
                                          : static_cast<uint32_t>(value));
        launch.arguments.push_back(&job.scalars.back());
    }
    job.launches.push_back(std::move(launch));
}

Job read_job(const char* path) {
    std::ifstream file(path);
    Job job;
    for (std::string text; std::getline(file, text);) {
        std::istringstream line(text);
        std::string item;
        line >> item;
        if (item == "buffer") {
            Buffer buffer{};
            line >> buffer.offset >> buffer.bytes >> buffer.name;
            // An allocation of its own and of its exact size: AddressSanitizer guards the first byte past the end.
            if (posix_memalign(&buffer.memory, 256, buffer.bytes) != 0)
                fail("no memory for buffer '%s'", buffer.name.c_str());
            job.buffers.push_back(buffer);
        } else {
            read_launch(job, line);
        }
    }
    return job;
}

char* map_file(const char* path) {
    const int file = open(path, O_RDWR);
    struct stat status{};
    if (file < 0 || fstat(file, &status) != 0) fail("can't open %s", path);
    void* mapping = mmap(nullptr, status.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (mapping == MAP_FAILED) fail("can't map %s", path);
    return static_cast<char*>(mapping);
}

}  // namespace

int main(int argc, char** argv) {
    const Job job = read_job(argv[2]);
    if (argc < 8) return 0;
    alarm(static_cast<unsigned>(std::atoi(argv[7])));  // an endless kernel ends by signal
    char* data = map_file(argv[3]);
    const std::string order = argv[4];
    for (const Buffer& buffer : job.buffers) {
        std::memcpy(buffer.memory, data + buffer.offset, buffer.bytes);
        std::fprintf(stderr, "nnz-buffer %p %s\n", buffer.memory,
                     buffer.name.c_str());  // names it in a sanitizer's finding
    }
    for (const Launch& launch : job.launches)
        run_grid(launch,
                 order == "forward"    ? Order::forward
                 : order == "backward" ? Order::backward
                                       : Order::random,
                 std::strtoull(argv[5], nullptr, 10), static_cast<unsigned>(std::atoi(argv[6])));
    for (const Buffer& buffer : job.buffers) {
        if (std::memcmp(buffer.memory, data + buffer.offset, buffer.bytes) != 0)
            std::memcpy(data + buffer.offset, buffer.memory, buffer.bytes);
    }
    return 0;
}
